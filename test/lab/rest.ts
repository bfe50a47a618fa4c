import type { AgentOptions } from 'node:https';
import { errnoOf } from '@virtkeep/shared/errors';
import { type HttpAnswer, HttpClient, type HttpRequest } from '@virtkeep/shared/http-client';

export interface RestAnswer<T = Record<string, unknown>> {
  status: number;
  body: T;
  headers: Record<string, string | string[] | undefined>;
}

export interface TaskRecord {
  id: string;
  status: string;
  progress: number;
  error_message: string;
  error: { code: string; detail: string; msg_key: string } | null;
  entities: Record<string, string>;
  detail: { phase: string; bytes_done: number; bytes_total: number; rate: number; message: string };
}

const POLL_MS = 150;

/** A plain REST client: any answer is given as it came, whatever the command would make of it. */
export class Rest {
  readonly url: string;
  /** Each request on a connection of its own. */
  readonly #http: HttpClient;
  /** Reads on a kept one, which spares most of their handshakes. */
  readonly #kept: HttpClient | undefined;
  token: string | undefined;

  /**
   * @param ca PEM of the CA that signed the controller's certificate
   * @param isKept there is one controller behind the address: reads may keep their connection
   */
  constructor(url: string, ca: string, token?: string, isKept = false) {
    this.url = url;
    this.token = token;
    this.#http = clientOf({ ca, keepAlive: false });
    if (isKept) this.#kept = clientOf({ ca, keepAlive: true });
  }

  /** Logs in and keeps the token for further requests. @throws Error when refused */
  async login(username: string, password: string): Promise<this> {
    const answer = await this.send<{ token: string }>('POST', '/auth/', { username, password });
    if (answer.status !== 200)
      throw new Error(`login as ${username}: ${answer.status} ${JSON.stringify(answer.body)}`);
    this.token = answer.body.token;
    return this;
  }

  /** One request; any status is an answer. A body that is not JSON is given as `{ text }`. */
  async send<T = Record<string, unknown>>(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<RestAnswer<T>> {
    const isRaw = body === undefined || typeof body === 'string' || Buffer.isBuffer(body);
    const request = {
      method,
      url: new URL(path, this.url),
      payload: isRaw ? body : JSON.stringify(body),
      headers: { ...(this.token ? { authorization: `jwt ${this.token}` } : {}), ...headers },
    };
    const { status, text, ...answer } = await (method === 'GET'
      ? this.#read(request)
      : this.#http.send(request));
    return { status, body: parse(text) as T, headers: answer.headers };
  }

  /** A kept connection dies with a killed controller, and a test must not see that. */
  #read(request: HttpRequest): Promise<HttpAnswer> {
    const anew = () => this.#http.send(request);
    if (!this.#kept) return anew();
    return this.#kept.send(request).catch((error: unknown) => {
      if (['ECONNRESET', 'EPIPE'].includes(errnoOf(error) ?? '')) return anew();
      throw error;
    });
  }

  /** A request that must succeed. @throws Error with status and body otherwise */
  async ok<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<T> {
    const answer = await this.send<T>(method, path, body);
    if (answer.status < 200 || answer.status > 299) {
      throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    }
    return answer.body;
  }

  get<T = Record<string, unknown>>(path: string): Promise<T> {
    return this.ok<T>('GET', path);
  }

  /** All records of a list (up to 1000). */
  async list<T = Record<string, unknown>>(path: string): Promise<T[]> {
    const separator = path.includes('?') ? '&' : '?';
    return (await this.get<{ results: T[] }>(`${path}${separator}limit=1000&all_content=1`)).results;
  }

  /** Starts a long action and returns its task and what is made or changed. @throws Error when it is refused */
  async begin(
    path: string,
    body: unknown = {},
    method = 'POST',
  ): Promise<{ entity: string; taskId: string }> {
    const separator = path.includes('?') ? '&' : '?';
    const answer = await this.ok<{ entity: string; _task: { id: string } }>(
      method,
      `${path}${separator}async=1`,
      body,
    );
    return { entity: answer.entity, taskId: answer._task.id };
  }

  task(id: string): Promise<TaskRecord> {
    return this.get<TaskRecord>(`/api/tasks/${id}/`);
  }

  /** Waits until the task has ended, however; one that is LOST goes on with its node. @throws Error when it takes longer */
  async waitTask(id: string, timeoutMs = 180_000): Promise<TaskRecord> {
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      const task = await this.task(id);
      if (!['IN_PROGRESS', 'LOST'].includes(task.status)) return task;
      if (Date.now() > deadline) throw new Error(`task ${id} still runs: ${JSON.stringify(task.detail)}`);
      await new Promise(resolve => setTimeout(resolve, POLL_MS));
    }
  }

  /** Starts a long action and waits for its success. @throws Error with the task's error otherwise */
  async action(
    path: string,
    body: unknown = {},
    timeoutMs?: number,
  ): Promise<{ entity: string; task: TaskRecord }> {
    const { entity, taskId } = await this.begin(path, body);
    const task = await this.waitTask(taskId, timeoutMs);
    if (task.status !== 'SUCCESS')
      throw new Error(`${path}: ${task.status} ${JSON.stringify(task.error)} ${task.error_message}`);
    return { entity, task };
  }
}

function clientOf(agent: AgentOptions): HttpClient {
  return new HttpClient({ agent, idleTimeoutMs: 360_000, maxAnswerBytes: Number.POSITIVE_INFINITY });
}

function parse(text: string): unknown {
  try {
    return text === '' ? {} : JSON.parse(text);
  } catch {
    return { text };
  }
}
