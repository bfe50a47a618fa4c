/**
 * What a definition that cannot be read may refer to, found in its text: a VM that nobody understands must not hold up
 * those beside it, and whatever it names counts as its own.
 */
import { cleanPath } from '@virtkeep/shared/clean-path';

export interface Mentioned {
  /** Everything that begins with a slash, in attributes and texts. */
  paths: string[];
  volumes: { pool: string; volume: string }[];
}

/** As libvirt writes it; no quote, bracket or ampersand stands in a value unless as a reference. */
const PATH = /(?:["']|>\s*)(\/[^"'<>]+)/g;
const VOLUME = /\spool=["']([^"'<>]*)["']\s+volume=["']([^"'<>]*)["']/g;
const REFERENCE = /&(?:#x([\da-f]{1,6})|#(\d{1,7})|(amp|lt|gt|quot|apos));/gi;
const NAMED: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

export function mentionedIn(xml: string): Mentioned {
  return {
    paths: [...new Set([...xml.matchAll(PATH)].map(([, path]) => cleanPath(plain(path!.trimEnd()))))],
    volumes: [...xml.matchAll(VOLUME)].map(([, pool, name]) => ({
      pool: plain(pool!),
      volume: plain(name!),
    })),
  };
}

function plain(text: string): string {
  return text.replace(REFERENCE, (whole, hex?: string, decimal?: string, name?: string) => {
    if (name !== undefined) return NAMED[name.toLowerCase()] ?? whole;
    const code = Number.parseInt(hex ?? decimal!, hex === undefined ? 10 : 16);
    return code > 0x10ffff ? whole : String.fromCodePoint(code);
  });
}
