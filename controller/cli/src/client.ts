import { readFileSync } from 'node:fs';
import { request as requestHttp } from 'node:http';
import { Agent, request as requestHttps } from 'node:https';
import { CliError, ExitCode, exitCodeFor } from './exit-codes.ts';
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

  #send(method: string, url: URL, body?: Json): Promise<Answer> {
    const payload = body === undefined ? undefined : JSON.stringify(body);
    const headers: Record<string, string | number> = { accept: 'application/json' };
    if (this.#session.token) headers.authorization = `jwt ${this.#session.token}`;
    if (payload !== undefined) {
      headers['content-type'] = 'application/json';
      headers['content-length'] = Buffer.byteLength(payload);
    }
    return new Promise((resolve, reject) => {
      const fail = (error: NodeJS.ErrnoException) =>
        reject(
          new CliError(
            `Cannot reach the controller at ${url.origin}: ${describe(error)}`,
            ExitCode.unreachable,
          ),
        );
      const secure = url.protocol === 'https:';
      const send = secure ? requestHttps : requestHttp;
      const request = send(
        url,
        { method, headers, timeout: IDLE_TIMEOUT_MS, ...(secure ? { agent: this.#agent } : {}) },
        response => {
          const chunks: Buffer[] = [];
          let sizeBytes = 0;
          response.on('data', (chunk: Buffer) => {
            sizeBytes += chunk.length;
            if (sizeBytes > MAX_ANSWER_BYTES) request.destroy(new Error('the answer is too large'));
            else chunks.push(chunk);
          });
          response.on('error', fail);
          response.on('end', () =>
            resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString('utf8') }),
          );
        },
      );
      request.on('timeout', () => request.destroy(new Error('no answer in time')));
      request.on('error', fail);
      request.end(payload);
    });
  }
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
    const texts = errors?.map(error => `${error.detail} (${error.code})`);
    if (texts?.length) return texts.join('\n');
    if (detail) return detail;
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
