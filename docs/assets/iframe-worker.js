// Opened from disk, a browser allows no worker: the site's search then runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script>
        window.postMessage = (data) => parent.dispatchEvent(new MessageEvent("frame-message", { data }));
        window.importScripts = (...urls) => Promise.all(urls.map((each) => new Promise((done, failed) => {
          const script = document.createElement("script");
          Object.assign(script, { src: each, onload: done, onerror: failed });
          document.body.append(script);
        })));
      </script><body><script src="${new URL(url, location)}"></script></body>`;
      // a message comes later, as a worker's would, never within the call that sent one
      window.addEventListener("frame-message", ({ data }) => setTimeout(() => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      }));
      this.frame.onload = () => {
        const sent = this.waiting;
        this.waiting = null;
        sent.forEach((data) => this.postMessage(data));
      };
      document.documentElement.append(this.frame);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else setTimeout(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
