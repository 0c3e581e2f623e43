// Copies code, and makes changes without leaving the place in the text.
import { say } from "./stream.js";

const said = document.getElementById("said");

for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const label = button.firstChild;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    label.data = "Copied";
    said.textContent = "Copied";
  } catch {
    // A browser that grants no clipboard: the code is selected, and the keyboard copies it.
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    said.textContent = "Selected; copy it with the keyboard";
  }
  setTimeout(() => { label.data = "Copy"; said.textContent = ""; }, 2000);
});

document.addEventListener("submit", async (event) => {
  const button = event.submitter;
  if (!button?.hasAttribute("data-stay")) return;
  event.preventDefault();
  const answer = await fetch(button.formAction, { method: "POST", body: new URLSearchParams(new FormData(event.target)) })
    .catch(() => null);
  if (!answer) return say("The console does not answer. Try again.");
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const refused = page.querySelector(".note.bad:not(#trouble):not(#live *)") ?? (answer.ok ? null : page.querySelector("main p"));
  say(refused?.textContent ?? "");
  if (button.closest(".command")) document.getElementById("progress").scrollIntoView({ block: "nearest" });
});
