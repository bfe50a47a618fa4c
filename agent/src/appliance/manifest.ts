/** The text of a manifest (`.mf`): a digest of each file, as writers of appliances really write it. */

export type DigestName = 'sha1' | 'sha256' | 'sha512';

export interface ManifestEntry {
  /** Name of the file, without `./` before it. */
  file: string;
  digest: DigestName;
  /** Lower-case hexadecimal digits. */
  value: string;
}

export interface ParsedManifest {
  entries: ManifestEntry[];
  /** Lines that say nothing that is understood, at most ten. */
  unread: string[];
}

const DIGITS: Record<DigestName, number> = { sha1: 40, sha256: 64, sha512: 128 };
/** `SHA256(disk.vmdk)= 0123…`, with spaces or none. The name may hold brackets: the last one ends it. */
const LINE = /^(SHA1|SHA256|SHA512)[ \t]*\((.{1,1024})\)[ \t]*=[ \t]*([0-9a-f]+)[ \t]*$/i;
const MAX_UNREAD = 10;

/** Never throws: what is not understood is told. */
export function parseManifest(text: string): ParsedManifest {
  const entries: ManifestEntry[] = [];
  const unread: string[] = [];
  for (const line of text.replace(/^\uFEFF/, '').split(/\r\n|\r|\n/)) {
    const entry = parseDigestLine(line);
    if (entry !== undefined) entries.push(entry);
    else if (line.trim() !== '' && unread.length < MAX_UNREAD) unread.push(line.slice(0, 200));
  }
  return { entries, unread };
}

/** A line with a digest of as many digits as it must have. */
function parseDigestLine(line: string): ManifestEntry | undefined {
  const found = splitDigestLine(line);
  return found && found.value.length === DIGITS[found.digest] ? found : undefined;
}

/** A line of this form, with any number of digits. */
export function splitDigestLine(line: string): ManifestEntry | undefined {
  const [, digest, file, value] = LINE.exec(line) ?? [];
  if (digest === undefined) return undefined;
  return {
    file: file!.trim().replace(/^(\.\/)+/, ''),
    digest: digest.toLowerCase() as DigestName,
    value: value!.toLowerCase(),
  };
}
