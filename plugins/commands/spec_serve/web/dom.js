// Elements of the page.

export function make(tag, kind, text = "") {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.textContent = text;
  return made;
}

export function makeButton(label, kind, action) {
  const made = make("button", kind, label);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const field = make("textarea", "offscreen", text); // also in pages without TLS
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** A button that copies, and says so. */
export function makeCopyButton(getText, kind) {
  const button = makeButton("Copy", `${kind} copy`, async () => {
    await copyText(getText());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}
