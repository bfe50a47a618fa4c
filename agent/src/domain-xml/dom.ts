// The few ways a tree of elements is walked and changed. Paths are child element names separated by slashes; names are
// local names of elements without a namespace, as in all of libvirt's own elements.
import { cleanPath } from '@virtkeep/shared/clean-path';
import type { Element, Node } from '@xmldom/xmldom';

/** Child elements in document order; of one name when given. */
export function children(parent: Element, name?: string): Element[] {
  const found: Element[] = [];
  for (let node: Node | null = parent.firstChild; node; node = node.nextSibling) {
    if (node.nodeType !== node.ELEMENT_NODE) continue;
    const element = node as Element;
    if (name === undefined || (element.localName === name && !element.namespaceURI)) found.push(element);
  }
  return found;
}

/** The first element at a path of child names, e.g. `os/loader`. */
export function child(parent: Element, path: string): Element | undefined {
  let element: Element | undefined = parent;
  for (const name of path.split('/')) {
    element = element && children(element, name)[0];
  }
  return element;
}

/** All elements at a path: the last name may occur many times, the ones before it once. */
export function childrenAt(parent: Element, path: string): Element[] {
  const cut = path.lastIndexOf('/');
  if (cut < 0) return children(parent, path);
  const holder = child(parent, path.slice(0, cut));
  return holder ? children(holder, path.slice(cut + 1)) : [];
}

/** An attribute, or undefined when it is absent or empty. */
export function attr(element: Element | undefined, name: string): string | undefined {
  return element?.getAttribute(name) || undefined;
}

/** As `attr`, of one that names a file, which whoever wrote the XML may have spelt otherwise than the images' headers do. */
export function pathAttr(element: Element | undefined, name: string): string | undefined {
  const path = attr(element, name);
  return path && cleanPath(path);
}

/** The trimmed text at a path, or undefined when the element is absent or empty. */
export function text(parent: Element, path: string): string | undefined {
  return child(parent, path)?.textContent?.trim() || undefined;
}

/** Removes an element together with the blank text before it, so that no empty line is left. */
export function remove(element: Element): void {
  const before = element.previousSibling;
  const parent = element.parentNode;
  if (!parent) return;
  if (before && before.nodeType === before.TEXT_NODE && !before.nodeValue?.trim()) parent.removeChild(before);
  parent.removeChild(element);
}

/** The child element of that name, made at the end (or before `next`) when it is absent. */
export function ensureChild(parent: Element, name: string, next?: Element | null): Element {
  const found = child(parent, name);
  if (found) return found;
  const created = parent.ownerDocument!.createElement(name);
  parent.insertBefore(created, next ?? null);
  return created;
}

/** Every element below (and with) `root`, parents first. */
export function descendants(root: Element): Element[] {
  const found: Element[] = [];
  const stack: Element[] = [root];
  for (let element = stack.pop(); element; element = stack.pop()) {
    found.push(element);
    stack.push(...children(element).reverse());
  }
  return found;
}
