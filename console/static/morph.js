// Changes a part of the page into another one, touching only what differs: focus, selection, scrolling and what was
// folded open stay.
export function morph(here, html) {
  const wanted = document.createElement("template");
  wanted.innerHTML = html;
  children(here, wanted.content);
}

function children(here, wanted) {
  const goal = [...wanted.childNodes];
  goal.forEach((node, index) => {
    const current = here.childNodes[index];
    if (!current) here.append(node.cloneNode(true));
    else if (current.nodeType !== node.nodeType || current.nodeName !== node.nodeName || current.id !== node.id) {
      current.replaceWith(node.cloneNode(true));
    } else if (node.nodeType === Node.ELEMENT_NODE) element(current, node);
    else if (current.data !== node.data) current.data = node.data;
  });
  while (here.childNodes.length > goal.length) here.lastChild.remove();
}

function element(here, wanted) {
  for (const { name, value } of wanted.attributes) {
    // What the reader opened or closed is his.
    if (name !== "open" && here.getAttribute(name) !== value) here.setAttribute(name, value);
  }
  for (const { name } of [...here.attributes]) {
    if (name !== "open" && !wanted.hasAttribute(name)) here.removeAttribute(name);
  }
  // A time is shown in the reader's zone, and only its attribute tells whether it is another one.
  if (here.nodeName === "TIME") return;
  children(here, wanted);
}
