/** The file of a form (RFC 7578), as a stream: clients send images as a form with one file. */
import { VirtkeepError } from '@virtkeep/shared/errors';

const MAX_HEADER_BYTES = 16 * 1024;
const MAX_BOUNDARY = 70;

/** @returns undefined for another content type. @throws bad_request for a form without a boundary. */
export function boundaryOf(contentType: string): string | undefined {
  if (!/^multipart\/form-data\s*(;|$)/i.test(contentType)) return undefined;
  const text = parametersOf(contentType).get('boundary') ?? '';
  if (text === '' || text.length > MAX_BOUNDARY) throw broken('its boundary is missing or too long');
  return text;
}

/** The parameters of a header's value; what stands in the quotes of one is no other, and quotes that do not end go to the end. */
function parametersOf(value: string): Map<string, string> {
  const found = new Map<string, string>();
  const parts = /"(?:[^"\\]|\\.)*"?|;\s*([^\s;="]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"?|([^;]*))/g;
  for (const [, name, quoted, plain = ''] of value.matchAll(parts)) {
    if (name !== undefined) found.set(name.toLowerCase(), quoted ?? plain.trim());
  }
  return found;
}

/** The name of the file that a part is, empty when the form's field was left so; undefined for a part that is none. */
function fileNameOf(headers: string): string | undefined {
  const value = /^content-disposition:([^\r\n]*)/im.exec(headers)?.[1] ?? '';
  const parameters = parametersOf(value);
  return parameters.get('filename*') || parameters.get('filename');
}

const broken = (reason: string) =>
  new VirtkeepError('bad_request', { reason: `the form is broken: ${reason}` });

/**
 * The bytes of the one part that is a file; other parts are passed over, as are fields for files that were left empty. What comes in is
 * held only as far as a boundary may begin in it.
 * @throws bad_request when there is no file, or another one after it, or the form ends too early: also after all bytes of the file have come
 */
export async function* fileOf(form: AsyncIterable<Uint8Array>, boundary: string): AsyncGenerator<Buffer> {
  const reader = new Reader(form);
  // the first boundary has no line before it
  reader.push(Buffer.from('\r\n'));
  const delimiter = Buffer.from(`\r\n--${boundary}`);
  await drain(reader.until(delimiter));
  let found = false;
  while (!(await reader.startsWith('--'))) {
    await collect(reader.until(Buffer.from('\r\n')), MAX_HEADER_BYTES);
    const name = fileNameOf(await headersOf(reader));
    const content = reader.until(delimiter);
    const { value: first } = name === undefined ? { value: undefined } : await content.next();
    if (name || first) {
      if (found) throw broken('it has more than one file');
      found = true;
      if (first) yield first;
      yield* content;
    } else await drain(content);
  }
  if (!found) throw broken('it has no file');
  await drain(reader.rest());
}

async function headersOf(reader: Reader): Promise<string> {
  let headers = '';
  for (;;) {
    const line = (await collect(reader.until(Buffer.from('\r\n')), MAX_HEADER_BYTES)).toString('latin1');
    if (line === '') return headers;
    headers += `${line}\r\n`;
    if (headers.length > MAX_HEADER_BYTES) throw broken('a head is too long');
  }
}

async function drain(bytes: AsyncIterable<Buffer>): Promise<void> {
  for await (const _ of bytes);
}

async function collect(bytes: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of bytes) {
    size += part.length;
    if (size > maxBytes) throw broken('a line is too long');
    parts.push(part);
  }
  return Buffer.concat(parts);
}

class Reader {
  readonly #source: AsyncIterator<Uint8Array>;
  #held: Buffer = Buffer.alloc(0);
  #ended = false;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  push(bytes: Uint8Array): void {
    this.#held = this.#held.length === 0 ? Buffer.from(bytes) : Buffer.concat([this.#held, bytes]);
  }

  /** Whether this text comes next; it stays. @throws bad_request when there is too little left to tell */
  async startsWith(text: string): Promise<boolean> {
    while (this.#held.length < text.length) if (!(await this.#more())) throw broken('it ends too early');
    return this.#held.toString('latin1', 0, text.length) === text;
  }

  /** What comes before a mark, which is taken away. @throws bad_request when it does not come */
  async *until(mark: Buffer): AsyncGenerator<Buffer> {
    for (;;) {
      const at = this.#held.indexOf(mark);
      if (at >= 0) {
        const before = this.#held.subarray(0, at);
        this.#held = this.#held.subarray(at + mark.length);
        if (before.length > 0) yield before;
        return;
      }
      // the mark may have begun in the last bytes
      const sure = this.#held.length - mark.length + 1;
      if (sure > 0) {
        const before = this.#held.subarray(0, sure);
        this.#held = this.#held.subarray(sure);
        yield before;
      }
      if (!(await this.#more())) throw broken('it ends too early');
    }
  }

  /** What is left. */
  async *rest(): AsyncGenerator<Buffer> {
    do {
      if (this.#held.length > 0) yield this.#held;
      this.#held = Buffer.alloc(0);
    } while (await this.#more());
  }

  async #more(): Promise<boolean> {
    if (this.#ended) return false;
    const next = await this.#source.next();
    this.#ended = next.done === true;
    if (!next.done) this.push(next.value);
    return !this.#ended;
  }
}
