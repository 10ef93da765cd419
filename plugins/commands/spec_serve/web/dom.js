// Elements of the page.

export function make(tag, kind, text = "") {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.textContent = text;
  return element;
}

export function makeButton(label, kind, action) {
  const element = make("button", kind, label);
  element.type = "button";
  element.addEventListener("click", action);
  return element;
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
