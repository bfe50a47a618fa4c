import { readFileSync } from 'node:fs';
import { type ClientRequest, type IncomingMessage, request as requestHttp } from 'node:http';
import { Agent, request as requestHttps } from 'node:https';
import { text } from 'node:stream/consumers';
import { CliError, ExitCode, exitCodeFor } from './exit-codes.ts';
import { clean } from './output.ts';
import type { Session } from './session.ts';

export type Json = Record<string, unknown>;
export type Query = Record<string, string | number | boolean | undefined>;

/** Largest answer that is read, bytes: far above a page of 1000 records. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const IDLE_TIMEOUT_MS = 330_000;

interface Answer {
  status: number;
  body: string;
}

/** The answer of a download, to be read by its user. */
export interface Bytes {
  status: number;
  /** Undefined when the controller does not know the length. */
  length: number | undefined;
  /** Changes with the bytes. */
  tag: string | undefined;
  stream: IncomingMessage;
}

/** The REST calls of the controller: JSON in, JSON out, its errors as CliErrors with their text. */
export class Client {
  readonly #session: Session;
  readonly #agent: Agent;

  constructor(session: Session) {
    this.#session = session;
    this.#agent = new Agent({
      keepAlive: true,
      maxSockets: 4,
      ...(session.ca ? { ca: readCa(session.ca) } : {}),
    });
  }

  get<T = Json>(path: string, query: Query = {}): Promise<T> {
    return this.#call('GET', path, query);
  }

  post<T = Json>(path: string, body: Json = {}, query: Query = {}): Promise<T> {
    return this.#call('POST', path, query, body);
  }

  put<T = Json>(path: string, body: Json = {}, query: Query = {}): Promise<T> {
    return this.#call('PUT', path, query, body);
  }

  /** All records of a list, page by page. */
  async all<T = Json>(path: string, query: Query = {}): Promise<T[]> {
    const records: T[] = [];
    for (;;) {
      const page = await this.get<{ count: number; results: T[] }>(path, {
        limit: 1000,
        offset: records.length,
        ...query,
      });
      records.push(...page.results);
      if (page.results.length === 0 || records.length >= page.count) return records;
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  async #call<T>(method: string, path: string, query: Query, body?: Json): Promise<T> {
    const answer = await this.#send(method, buildUrl(this.#session.url, path, query), body);
    if (answer.status >= 200 && answer.status < 300) return (answer.body ? JSON.parse(answer.body) : {}) as T;
    throw new CliError(errorText(answer), exitCodeFor(answer.status));
  }

  /**
   * Opens a download.
   * @param from bytes to leave out at the beginning, unless they have another tag by now: then it is all of them.
   */
  async bytes(path: string, query: Query, from?: { offset: number; tag: string }): Promise<Bytes> {
    const url = buildUrl(this.#session.url, path, query);
    const headers = this.#headers(undefined);
    if (from) Object.assign(headers, { range: `bytes=${from.offset}-`, 'if-range': from.tag });
    const { answer: stream } = await this.#open('GET', url, headers, undefined);
    const status = stream.statusCode ?? 0;
    if (status === 200 || status === 206) {
      const { 'content-length': length, etag: tag } = stream.headers;
      return { status, length: length === undefined ? undefined : Number(length), tag, stream };
    }
    throw new CliError(errorText({ status, body: await text(stream) }), exitCodeFor(status));
  }

  async #send(method: string, url: URL, body?: Json): Promise<Answer> {
    const payload = body === undefined ? undefined : JSON.stringify(body);
    const { request, answer } = await this.#open(method, url, this.#headers(payload), payload);
    const chunks: Buffer[] = [];
    let sizeBytes = 0;
    try {
      for await (const chunk of answer as AsyncIterable<Buffer>) {
        sizeBytes += chunk.length;
        if (sizeBytes > MAX_ANSWER_BYTES) request.destroy(new Error('the answer is too large'));
        else chunks.push(chunk);
      }
    } catch (error) {
      throw unreachable(url, error as NodeJS.ErrnoException);
    }
    return { status: answer.statusCode ?? 0, body: Buffer.concat(chunks).toString('utf8') };
  }

  #headers(payload: string | undefined): Record<string, string | number> {
    const headers: Record<string, string | number> = { accept: 'application/json' };
    if (this.#session.token) headers.authorization = `jwt ${this.#session.token}`;
    if (payload !== undefined) {
      headers['content-type'] = 'application/json';
      headers['content-length'] = Buffer.byteLength(payload);
    }
    return headers;
  }

  /** Sends a request; answers when the headers are there. */
  #open(
    method: string,
    url: URL,
    headers: Record<string, string | number>,
    payload: string | undefined,
  ): Promise<{ request: ClientRequest; answer: IncomingMessage }> {
    const secure = url.protocol === 'https:';
    const send = secure ? requestHttps : requestHttp;
    return new Promise((resolve, reject) => {
      const request = send(
        url,
        { method, headers, timeout: IDLE_TIMEOUT_MS, ...(secure ? { agent: this.#agent } : {}) },
        answer => resolve({ request, answer }),
      );
      request.on('timeout', () => request.destroy(new Error('no answer in time')));
      request.on('error', error => reject(unreachable(url, error)));
      request.end(payload);
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

function errorText(answer: Answer): string {
  try {
    const { errors, detail } = JSON.parse(answer.body) as {
      errors?: { code: string; detail: string }[];
      detail?: string;
    };
    const texts = errors?.map(error => `${clean(error.detail)} (${error.code})`);
    if (texts?.length) return texts.join('\n');
    if (detail) return clean(detail);
  } catch {
    // Not JSON: something between us and the controller answered.
  }
  return `The controller answered with HTTP status ${answer.status}.`;
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
