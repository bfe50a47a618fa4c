/**
 * Characters of other people's texts that do something where they are printed: end a line, move a cursor, turn the
 * direction of what follows, or are not seen at all.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is meant
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** One line that only says what is seen. */
export function withoutHidden(text: string): string {
  return text.replace(HIDDEN, ' ');
}

/** Whether it has characters that do more than to end a line. */
export function hasHidden(text: string): boolean {
  return withoutHidden(text.replaceAll('\n', '')) !== text.replaceAll('\n', '');
}

/** JSON on one line, or a line of one, with such characters escaped; it is the same JSON. */
export function escapeHidden(json: string): string {
  return json.replace(HIDDEN, one => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
