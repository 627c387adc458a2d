/* Pages opened from a folder (file://) may not start workers, and search runs in one.
   There, the worker's script runs in a hidden frame instead, and messages go back and forth by hand. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const scope = (this.scope = frame.contentWindow)
      const load = source =>
        new Promise((done, failed) => {
          const script = scope.document.createElement("script")
          Object.assign(script, { src: source, onload: done, onerror: failed })
          scope.document.body.appendChild(script)
        })
      const base = new URL(url, location.href)
      this.receive = scope.postMessage.bind(scope)
      scope.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      scope.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => load(new URL(one, base))), Promise.resolve())
      this.ready = load(base)
    }
    postMessage(data) {
      this.ready.then(() => this.receive(data, "*"))
    }
    terminate() {
      this.scope.frameElement.remove()
    }
  }
}
