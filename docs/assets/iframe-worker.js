// The search of this site runs in a Worker. A page that was opened from a folder (file://) may not
// start one: there, a hidden frame runs the same script instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      this.ready = this.load(address);
      inside.importScripts = (...addresses) => Promise.all(addresses.map((each) => this.load(each)));
    }

    load(address) {
      const script = this.frame.contentDocument.createElement("script");
      script.src = new URL(address, location.href).href;
      const done = new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = reject;
      });
      this.frame.contentDocument.body.append(script);
      return done;
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
