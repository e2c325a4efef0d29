// Search runs in a worker, which a page opened from a disk may not start: there a hidden frame runs its script instead. It
// begins when somebody goes to the search field, because it works in the page's own thread.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const begin = (event) => {
        if (!event.target.matches?.(".md-search__input")) return;
        document.removeEventListener("focusin", begin);
        const frame = Object.assign(document.createElement("iframe"), { hidden: true });
        frame.addEventListener("load", () => this.start(frame.contentWindow, url), { once: true });
        document.body.append(frame);
      };
      document.addEventListener("focusin", begin);
    }

    start(inside, url) {
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = Object.assign(inside.document.createElement("script"), { src: url });
      script.addEventListener("load", () => {
        this.inside = inside;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
      inside.document.body.append(script);
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }

    terminate() {
      this.inside = undefined;
    }
  };
}
