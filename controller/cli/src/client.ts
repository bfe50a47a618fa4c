import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { HttpClient, type HttpRequest } from '@virtkeep/shared/http-client';
import { CliError, ExitCode, exitCodeFor } from './exit-codes.ts';
import { clean } from './output.ts';
import type { Session } from './session.ts';

export type Json = Record<string, unknown>;
export type Query = Record<string, string | number | boolean | undefined>;

/** Largest answer that is read, bytes: far above a page of 1000 records. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const IDLE_TIMEOUT_MS = 330_000;

interface Call {
  method: string;
  path: string;
  query: Query;
  body?: Json | undefined;
}

interface Answer {
  status: number;
  text: string;
}

/** The answer of a download, to be read by its user. */
export interface Bytes {
  status: number;
  /** Undefined when the controller does not know the length. */
  length: number | undefined;
  /** Changes with the bytes. */
  tag: string | undefined;
  stream: Readable;
}

/** The REST calls of the controller: JSON in, JSON out, its errors as CliErrors with their text. */
export class Client {
  readonly #session: Session;
  readonly #http: HttpClient;

  constructor(session: Session) {
    this.#session = session;
    this.#http = new HttpClient({
      agent: { keepAlive: true, maxSockets: 4, ...(session.ca ? { ca: readCa(session.ca) } : {}) },
      idleTimeoutMs: IDLE_TIMEOUT_MS,
      maxAnswerBytes: MAX_ANSWER_BYTES,
    });
  }

  /** @param signal ends the request */
  get<T = Json>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    return this.#answer({ method: 'GET', path, query }, signal);
  }

  post<T = Json>(path: string, body: Json = {}, query: Query = {}): Promise<T> {
    return this.#call('POST', path, query, body);
  }

  put<T = Json>(path: string, body: Json = {}, query: Query = {}): Promise<T> {
    return this.#call('PUT', path, query, body);
  }

  delete<T = Json>(path: string): Promise<T> {
    return this.#call('DELETE', path, {});
  }

  /** All records of a list, page by page. @param body of one that is asked for by a POST */
  async all<T = Json>(path: string, query: Query = {}, body?: Json): Promise<T[]> {
    const records: T[] = [];
    for (;;) {
      const part = { limit: 1000, offset: records.length, ...query };
      const page = await this.#call<{ count: number; results: T[] }>(
        body === undefined ? 'GET' : 'POST',
        path,
        part,
        body,
      );
      records.push(...page.results);
      if (page.results.length === 0 || records.length >= page.count) return records;
    }
  }

  close(): void {
    this.#http.close();
  }

  #call<T>(method: string, path: string, query: Query, body?: Json): Promise<T> {
    return this.#answer({ method, path, query, body });
  }

  async #answer<T>({ method, path, query, body }: Call, signal?: AbortSignal): Promise<T> {
    const url = buildUrl(this.#session.url, path, query);
    const payload = body === undefined ? undefined : JSON.stringify(body);
    const request = { method, url, payload, headers: this.#headers(), ...(signal ? { signal } : {}) };
    const answer = await this.#reach(request, () => this.#http.send(request));
    if (answer.status >= 200 && answer.status < 300) return (answer.text ? JSON.parse(answer.text) : {}) as T;
    const seconds = Number(answer.headers['retry-after']);
    const retryAfterMs = seconds >= 0 ? seconds * 1000 : undefined;
    throw refusal(answer, retryAfterMs);
  }

  /**
   * Opens a download.
   * @param from bytes to leave out at the beginning, unless they have another tag by now: then it is all of them.
   */
  async bytes(path: string, query: Query, from?: { offset: number; tag: string }): Promise<Bytes> {
    const url = buildUrl(this.#session.url, path, query);
    const range = from ? { range: `bytes=${from.offset}-`, 'if-range': from.tag } : {};
    const request = { method: 'GET', url, headers: { ...this.#headers(), ...range } };
    const { status, headers, stream } = await this.#reach(request, () => this.#http.open(request));
    if (status === 200 || status === 206) {
      const { 'content-length': length, etag: tag } = headers;
      return { status, length: length === undefined ? undefined : Number(length), tag, stream };
    }
    // of what begins where it ends nothing is left
    if (status === 416 && from && headers['content-range'] === `bytes */${from.offset}`) {
      stream.destroy();
      return { status: 206, length: 0, tag: from.tag, stream: Readable.from([]) };
    }
    const text = await this.#reach(request, () => this.#http.text(stream));
    throw refusal({ status, text });
  }

  /** Creates an upload (tus). @returns its path */
  async tusCreate(path: string, sizeBytes: number, metadata: Record<string, string>): Promise<string> {
    const given = Object.entries(metadata).filter(([, value]) => value !== '');
    const base64 = (text: string) => Buffer.from(text).toString('base64');
    const headers = await this.#tus('POST', path, {
      'upload-length': String(sizeBytes),
      'upload-metadata': given.map(([name, value]) => `${name} ${base64(value)}`).join(','),
    });
    return String(headers.location);
  }

  /** How many bytes of an upload have come. */
  async tusOffset(path: string): Promise<number> {
    return Number((await this.#tus('HEAD', path, {}))['upload-offset']);
  }

  /** Sends bytes of an upload. @returns how many have come now */
  async tusSend(path: string, offset: number, lengthBytes: number, stream: Readable): Promise<number> {
    const headers = {
      'content-type': 'application/offset+octet-stream',
      'content-length': String(lengthBytes),
      'upload-offset': String(offset),
    };
    return Number((await this.#tus('PATCH', path, headers, stream))['upload-offset']);
  }

  /** Ends an upload: nothing of it stays. */
  async tusEnd(path: string): Promise<void> {
    await this.#tus('DELETE', path, {});
  }

  /** @throws CliError as the other calls */
  async #tus(method: string, path: string, more: Record<string, string>, payload?: Readable) {
    const url = buildUrl(this.#session.url, path, {});
    const request = {
      method,
      url,
      payload,
      headers: { ...this.#headers(), 'tus-resumable': '1.0.0', ...more },
    };
    const { status, headers, text } = await this.#reach(request, () => this.#http.send(request));
    if (status >= 200 && status < 300) return headers;
    throw refusal({ status, text });
  }

  #headers(): Record<string, string> {
    const { token } = this.#session;
    const program = { accept: 'application/json', 'user-agent': 'virtkeep' };
    return { ...program, ...(token ? { authorization: `jwt ${token}` } : {}) };
  }

  /** @throws CliError when the controller cannot be reached, or does not answer to the end; what the bytes of a request throw */
  #reach<T>({ url }: HttpRequest, send: () => Promise<T>): Promise<T> {
    return send().catch(error => {
      // what was to be sent could not be read here
      if (error instanceof CliError) throw error;
      throw unreachable(url, error as NodeJS.ErrnoException);
    });
  }
}

function unreachable(url: URL, error: NodeJS.ErrnoException): CliError {
  return new CliError(
    `Cannot reach the controller at ${url.origin}: ${describe(error)}`,
    ExitCode.unreachable,
  );
}

function readCa(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new CliError(`Cannot read the CA certificate ${path}: ${(error as Error).message}`, ExitCode.usage);
  }
}

function buildUrl(base: string, path: string, query: Query): URL {
  let url: URL;
  try {
    url = new URL(path, base);
  } catch {
    throw new CliError(`"${base}" is not a URL. Use https://HOST[:PORT].`, ExitCode.usage);
  }
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) url.searchParams.set(name, String(value));
  return url;
}

function refusal({ status, text }: Answer, retryAfterMs?: number): CliError {
  const told = errorText(text);
  if (told !== '') return new CliError(told, exitCodeFor(status), retryAfterMs);
  // a proxy before a controller that is restarted answers so
  const exitCode = status === 502 ? ExitCode.unreachable : exitCodeFor(status);
  return new CliError(
    `Something before the controller answered with HTTP status ${status}.`,
    exitCode,
    retryAfterMs,
  );
}

/** Empty when it is not the controller's. */
function errorText(text: string): string {
  try {
    const { errors, detail } = JSON.parse(text) as {
      errors?: { code: string; detail: string }[];
      detail?: string;
    };
    const texts = errors?.map(error => `${clean(error.detail)} (${error.code})`);
    if (texts?.length) return texts.join('\n');
    return clean(detail ?? '');
  } catch {
    return '';
  }
}

function describe(error: NodeJS.ErrnoException): string {
  if (
    error.code === 'DEPTH_ZERO_SELF_SIGNED_CERT' ||
    error.code === 'SELF_SIGNED_CERT_IN_CHAIN' ||
    error.code === 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'
  ) {
    return `its certificate is not trusted (${error.code}). Give the CA certificate with --ca or VIRTKEEP_CA.`;
  }
  return error.message || error.code || 'unknown error';
}
