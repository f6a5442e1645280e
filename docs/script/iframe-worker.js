// Workers for pages that are files: browsers start none there, so a frame without a face runs the
// script, and messages go to and fro.  The search of the site is such a worker; with this in the page
// it works from a folder, without a server and without a network.
class IFrameWorker extends EventTarget {
  constructor(address) {
    super();
    this.waiting = [];
    const frame = document.createElement('iframe');
    frame.hidden = true;
    document.body.append(frame);
    const inner = frame.contentWindow;
    inner.postMessage = (data) => { // what the script says goes out
      const event = new MessageEvent('message', {data});
      this.onmessage?.(event);
      this.dispatchEvent(event);
    };
    inner.importScripts = (...sources) => Promise.all(sources.map((source) =>
      new Promise((done, fail) => {
        const script = Object.assign(inner.document.createElement('script'),
          {src: source, onload: done, onerror: fail});
        inner.document.body.append(script);
      })));
    this.tell = (data) => inner.dispatchEvent(new inner.MessageEvent('message', {data}));
    const script = Object.assign(inner.document.createElement('script'), {src: `${address}`});
    script.onload = () => {
      this.ready = true;
      this.waiting.splice(0).forEach(this.tell);
    };
    inner.document.body.append(script);
  }

  postMessage(data) {
    if (this.ready) this.tell(data); else this.waiting.push(data);
  }

  terminate() {}
}
if (location.protocol === 'file:') {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
