/* A page opened as a file may start no worker: a frame of the page does the search's work. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      this.ready = new Promise((done) => (script.onload = done));
      script.src = url;
      this.inside.document.head.append(script);
    }

    postMessage(data) {
      const { inside } = this;
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
