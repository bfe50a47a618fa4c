/**
 * Requests to the controller's REST API, from outside of it: a command, a node that enrols. Any status is an answer; what it
 * means, and how a request that fails is told, is its user's.
 */
import {
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request as requestHttp,
} from 'node:http';
import { Agent, type AgentOptions, request as requestHttps } from 'node:https';
import { Readable } from 'node:stream';

export interface HttpClientOptions {
  /** Of https: `ca`, PEM, is trusted in place of the system's authorities. */
  agent?: AgentOptions;
  /** A connection that is silent for so long is given up. */
  idleTimeoutMs: number;
  /** A longer answer is not read; a stream may be as long as it is. */
  maxAnswerBytes: number;
}

export interface HttpRequest {
  method: string;
  url: URL;
  /** JSON as text, unless the headers name another type; of a stream they name type and length. */
  payload?: string | Buffer | Readable | undefined;
  headers?: Readonly<Record<string, string>>;
  /** Ends the request and the reading of its answer. */
  signal?: AbortSignal;
}

export interface HttpStream {
  status: number;
  headers: IncomingHttpHeaders;
  stream: IncomingMessage;
}

export interface HttpAnswer extends Omit<HttpStream, 'stream'> {
  text: string;
}

export class HttpClient {
  readonly #options: HttpClientOptions;
  readonly #agent: Agent;

  constructor(options: HttpClientOptions) {
    this.#options = options;
    this.#agent = new Agent(options.agent);
  }

  /** @throws Error as node:https, and when the answer is late or too large; a cut answer is none */
  async send(request: HttpRequest): Promise<HttpAnswer> {
    const { stream, ...answer } = await this.open(request);
    return { ...answer, text: await this.text(stream) };
  }

  /** Answers when the headers are there; the rest is read by the caller. @throws Error as `send` */
  open({ method, url, payload, headers, signal }: HttpRequest): Promise<HttpStream> {
    const isSecure = url.protocol === 'https:';
    const send = isSecure ? requestHttps : requestHttp;
    const options = {
      method,
      headers: { ...headersOf(payload), ...headers },
      timeout: this.#options.idleTimeoutMs,
      ...(isSecure ? { agent: this.#agent } : {}),
      ...(signal ? { signal } : {}),
    };
    return new Promise((resolve, reject) => {
      const request = send(url, options, stream =>
        resolve({ status: stream.statusCode ?? 0, headers: stream.headers, stream }),
      );
      request.on('timeout', () => request.destroy(new Error('no answer in time')));
      request.on('error', reject);
      if (payload instanceof Readable) sendAll(payload, request);
      else request.end(payload);
    });
  }

  /** The text of an opened answer. @throws Error as `send` */
  async text(stream: IncomingMessage): Promise<string> {
    const chunks: Buffer[] = [];
    let sizeBytes = 0;
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      sizeBytes += chunk.length;
      if (sizeBytes > this.#options.maxAnswerBytes) throw new Error('the answer is too large');
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString('utf8');
  }

  /** Closes the connections that are kept. */
  close(): void {
    this.#agent.destroy();
  }
}

/** A source that fails cuts the request: what was sent is no whole body. */
function sendAll(payload: Readable, request: ClientRequest): void {
  payload.once('error', error => request.destroy(error));
  request.once('close', () => payload.destroy());
  payload.pipe(request);
}

function headersOf(payload: string | Buffer | Readable | undefined): Record<string, string> {
  if (payload === undefined || payload instanceof Readable) return {};
  return { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(payload)) };
}
