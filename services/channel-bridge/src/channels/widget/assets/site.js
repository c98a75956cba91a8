// Shows the conversation on a site, in a frame of the bridge:
// <script src="https://bridge/widget/ACCOUNT.js" data-user="42" data-signature="…" async></script>
"use strict";

(() => {
  const script = document.currentScript;
  const page = script.src.replace(/\.js(\?.*)?$/, "");
  const fragment = new URLSearchParams();
  for (const name of ["user", "signature", "time"]) {
    if (script.dataset[name]) fragment.set(name, script.dataset[name]);
  }
  const frame = document.createElement("iframe");
  frame.title = "Chat";
  Object.assign(frame.style, {
    position: "fixed", right: "16px", bottom: "76px", width: "min(380px, calc(100vw - 32px))",
    height: "min(560px, calc(100vh - 96px))", border: "1px solid #ccc", borderRadius: "12px",
    background: "#fff", display: "none", zIndex: "2147483646",
  });
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Chat";
  button.setAttribute("aria-expanded", "false");
  Object.assign(button.style, {
    position: "fixed", right: "16px", bottom: "16px", padding: "12px 18px", border: "0",
    borderRadius: "24px", background: "#1d4ed8", color: "#fff", font: "15px system-ui, sans-serif",
    cursor: "pointer", zIndex: "2147483647",
  });
  button.addEventListener("click", () => {
    const isOpen = frame.style.display === "none";
    if (isOpen && !frame.src) frame.src = page + (String(fragment) ? "#" + fragment : "");
    frame.style.display = isOpen ? "block" : "none";
    button.setAttribute("aria-expanded", String(isOpen));
  });
  const add = () => document.body.append(frame, button);
  if (document.body) add(); else addEventListener("DOMContentLoaded", add);
})();
