/**
 * The built management pages, read once: what is served is what was in their folder at the start, and no path of a request reaches
 * a file system.
 */
import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Where `make web` puts them. */
export const PAGES_DIR = fileURLToPath(new URL('../../web/dist/', import.meta.url));

/** A file as it is sent, whole and packed. */
export interface PageFile {
  type: string;
  etag: string;
  bytes: Buffer;
  packed: ReadonlyMap<'br' | 'gzip', Buffer>;
  /** Its name tells its content, so it never changes. */
  isImmutable: boolean;
}

/** By their paths below the folder; the first page is `index.html`. */
export type PageFiles = ReadonlyMap<string, PageFile>;

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.woff2': 'font/woff2',
  '.txt': 'text/plain; charset=utf-8',
};
const PACKED = { br: '.br', gzip: '.gz' } as const;
/** As the build names what it has put together: a name, a dash, and a part of its hash. */
const HASHED = /-[\w-]{8}\.\w+$/;

/** Empty when they were not built. */
export function readPages(dir: string): PageFiles {
  const files = new Map<string, PageFile>();
  if (!existsSync(join(dir, 'index.html'))) return files;
  for (const path of globSync('**/*', { cwd: dir })) {
    const type = TYPES[extname(path)];
    if (type !== undefined) files.set(path, readPage(join(dir, path), type));
  }
  return files;
}

function readPage(file: string, type: string): PageFile {
  const bytes = readFileSync(file);
  const packed = new Map<'br' | 'gzip', Buffer>();
  for (const [encoding, suffix] of Object.entries(PACKED) as ['br' | 'gzip', string][])
    if (existsSync(`${file}${suffix}`)) packed.set(encoding, readFileSync(`${file}${suffix}`));
  const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 27)}"`;
  return { type, etag, bytes, packed, isImmutable: HASHED.test(file) };
}

/** The best form of a file that a client takes, by its `Accept-Encoding`. */
export function packedFor(file: PageFile, accepted: string | undefined): ['br' | 'gzip', Buffer] | undefined {
  const names = (accepted ?? '')
    .split(',')
    .map(part => part.trim())
    .filter(part => !/;\s*q=0(?:\.0*)?$/.test(part))
    .map(part => part.split(';', 1)[0]!.trim().toLowerCase());
  for (const encoding of ['br', 'gzip'] as const) {
    const bytes = file.packed.get(encoding);
    if (bytes !== undefined && names.includes(encoding)) return [encoding, bytes];
  }
  return undefined;
}
