/** XML that is written anew: elements as data, and their text, indented. */

export interface Xml {
  name: string;
  attributes: Record<string, string | number>;
  content: Xml[] | string;
}

/** An element with elements, with text, or with nothing inside; `null` and `false` stand for nothing. */
export function el(
  name: string,
  attributes: Record<string, string | number> = {},
  content: string | (Xml | null | false)[] = [],
): Xml {
  const inner =
    typeof content === 'string' ? content : content.filter(part => part !== null && part !== false);
  return { name, attributes, content: inner };
}

export function xmlText({ name, attributes, content }: Xml, indent = ''): string {
  const pairs = Object.entries(attributes).map(([key, value]) => ` ${key}='${escaped(String(value))}'`);
  const open = `${indent}<${name}${pairs.join('')}`;
  if (content.length === 0) return `${open}/>\n`;
  if (typeof content === 'string') return `${open}>${escaped(content, /[&<>\r]/g)}</${name}>\n`;
  return `${open}>\n${content.map(inner => xmlText(inner, `${indent}  `)).join('')}${indent}</${name}>\n`;
}

/** Ends of lines in an attribute, and returns anywhere, would not be read as they were. */
function escaped(text: string, special = /[&<>'\t\n\r]/g): string {
  return text.replaceAll(special, one => `&#${one.charCodeAt(0)};`);
}
