// <overt-attention src="attention.html" text="A sentence." word="it" panel="steps" head="L5H11" step="1" theme="light"></overt-attention>
// shows one panel of a page of overt in a frame as high as its content. All attributes except src are optional and may change later.
(() => {
  const PANELS = ["steps", "map", "links", "checks", "written", "states", "bottleneck", "joining", "reweight", "switches", "switched"];
  const HEAD = /^L?(\d{1,4})[H.](\d{1,4})$/;
  const READ = {
    panel: (value) => PANELS.includes(value) && { panel: value },
    text: (value) => ({ text: value }),
    word: (value) => ({ word: value }),
    head: (value) => HEAD.test(value) && { head: value.replace(HEAD, "$1.$2") },
    step: (value) => /^[1-9]$/.test(value) && { step: Number(value) - 1 },
    theme: (value) => ["auto", "light", "dark"].includes(value) && { theme: value },
  };
  const EXPECTED = { panel: `one of ${PANELS.join(", ")}`, head: "a layer and a head as L5H11", step: "a step from 1 to 9", theme: "auto, light or dark" };

  class OvertAttention extends HTMLElement {
    static observedAttributes = ["src", "height", ...Object.keys(READ)];
    #frame = null;
    #follow = ({ source, data }) => {
      if (source !== this.#frame?.contentWindow || data?.overt !== "height" || !Number.isFinite(data.height)) return;
      this.#frame.style.height = `${Math.min(10_000, Math.max(60, data.height))}px`;
    };

    connectedCallback() {
      window.addEventListener("message", this.#follow);
      this.#draw();
    }

    disconnectedCallback() {
      window.removeEventListener("message", this.#follow);
    }

    attributeChangedCallback() {
      if (this.isConnected) this.#draw();
    }

    #draw() {
      const wrong = this.#wrong();
      if (wrong) return void ((this.#frame = null), (this.textContent = wrong));
      const address = `${this.getAttribute("src").split("#")[0]}#embed=1${this.#settings().map(([name, value]) => `&${name}=${encodeURIComponent(value)}`).join("")}`;
      const frame = (this.#frame ??= Object.assign(document.createElement("iframe"), { loading: "lazy" }));
      frame.title = this.getAttribute("title") ?? `Attention${this.hasAttribute("word") ? ` of “${this.getAttribute("word")}”` : ""}`;
      if (!frame.isConnected) {
        frame.style.cssText = `display: block; width: 100%; border: 0; height: ${/^\d+$/.test(this.getAttribute("height") ?? "") ? this.getAttribute("height") : 480}px`;
        this.style.display = "block";
        this.replaceChildren(frame);
      }
      if (frame.getAttribute("src") !== address) frame.src = address;
      return undefined;
    }

    #settings() {
      return Object.keys(READ).filter((name) => this.hasAttribute(name)).flatMap((name) => Object.entries(READ[name](this.getAttribute(name))));
    }

    #wrong() {
      if (!this.getAttribute("src")) return 'Expected a page of overt as src, got none. Fix: write src="attention.html".';
      const name = Object.keys(READ).find((each) => this.hasAttribute(each) && !READ[each](this.getAttribute(each)));
      return name ? `Expected ${EXPECTED[name]} as ${name}, got “${this.getAttribute(name)}”. Fix: change the attribute ${name}, or leave it out.` : "";
    }
  }
  customElements.define("overt-attention", OvertAttention);
})();
