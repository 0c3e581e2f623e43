// A server-sent stream that closes while the page is hidden, reconnects automatically, and reports when it cannot.
const trouble = document.getElementById("trouble");

export function say(text) {
  if (trouble.textContent !== text) trouble.textContent = text;
  trouble.hidden = !text;
}

export function follow(address, handlers, connected = () => {}) {
  let source = null;
  let again = null;
  let wait = 1000;

  function open() {
    clearTimeout(again);
    if (source || document.hidden) return;
    source = new EventSource(address());
    source.onopen = () => { wait = 1000; say(""); connected(); };
    source.onerror = () => retry("The console does not answer. Trying again …");
    source.addEventListener("end", (event) => {
      if (JSON.parse(event.data) === "stopping") return retry("The console is being restarted …");
      close();
      say("You were signed out. Load the page again to sign in.");
    });
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
  }

  function close() {
    clearTimeout(again);
    source?.close();
    source = null;
  }

  async function retry(reason) {
    close();
    say(reason);
    again = setTimeout(open, wait);
    wait = Math.min(wait * 2, 15000);
    // A stream does not expose why it was refused; a plain request does.
    const answer = await fetch("/api/session").catch(() => null);
    if (answer?.status === 401) {
      close();
      say("You were signed out. Load the page again to sign in.");
    }
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
  return () => { close(); open(); };
}
