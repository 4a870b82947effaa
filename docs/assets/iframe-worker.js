// From disk a browser starts no worker: the site's search then runs in a hidden frame. Messages are copied
// and come later, as a worker's do.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script>
        window.postMessage = (data) =>
          parent.dispatchEvent(new MessageEvent("frame-message", { data: structuredClone(data) }));
      </script><body><script src="${new URL(url, location)}"></script></body>`;
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
    postMessage(sent) {
      const data = structuredClone(sent);
      if (this.waiting) this.waiting.push(data);
      else setTimeout(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
