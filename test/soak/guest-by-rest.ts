/** Operations in one guest as users start them: over REST, each as a task, and by the command line. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { NODE_BIN, ROOT } from '../lab/paths.ts';
import type { TaskRecord } from '../lab/rest.ts';
import type { World } from '../lab/world.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
export type Json = any;

const TASK_TIMEOUT_MS = 1_800_000;

/** How an operation was refused, or failed. */
export interface Refusal {
  /** Of the call, 200 when that was taken and its task failed. */
  status: number;
  key: string;
  detail: string;
  field?: string;
}

export class GuestByRest {
  readonly world: World;
  readonly id: string;

  constructor(world: World, id: string) {
    this.world = world;
    this.id = id;
  }

  /** Runs an operation to its end. @throws Error unless it succeeds */
  async run(path: string, body: object = {}): Promise<{ result: Json; task: TaskRecord }> {
    const { task, refused } = await this.#ended(path, body);
    if (!task) throw new Error(`${path}: ${JSON.stringify(refused)}`);
    const { response } = await this.world.rest.get<{ response: Json }>(`/api/tasks/${task.id}/response/`);
    return { result: response, task };
  }

  /** The error of an operation. @throws Error when there is none */
  async refusal(path: string, body: object = {}): Promise<Refusal> {
    const { refused } = await this.#ended(path, body);
    if (!refused) throw new Error(`${path}: it was taken`);
    return refused;
  }

  async keyOf(path: string, body: object = {}): Promise<string> {
    return (await this.refusal(path, body)).key;
  }

  async #ended(path: string, body: object): Promise<{ task?: TaskRecord; refused?: Refusal }> {
    const { rest } = this.world;
    const { status, body: answer } = await rest.send<Json>(
      'POST',
      `/api/domains/${this.id}/${path}/?async=1`,
      body,
    );
    if (status > 299) {
      const { msg_key: key, detail, field } = answer.errors[0];
      return { refused: { status, key, detail, field } };
    }
    const task = await rest.waitTask(answer._task.id, TASK_TIMEOUT_MS);
    if (task.status === 'SUCCESS') return { task };
    const { msg_key: key, detail } = task.error ?? { msg_key: task.status, detail: task.error_message };
    return { refused: { status, key, detail } };
  }

  /** What the controller tells of a user's keys. */
  async keys(user: string): Promise<string[]> {
    const path = `/api/domains/${this.id}/ssh-keys/?ssh_user=${user}`;
    return (await this.world.rest.get<{ keys: string[] }>(path)).keys;
  }

  /** Runs the `virtkeep` command to its end. @param input its standard input */
  async cli(args: string[], input = ''): Promise<{ code: number | null; out: string; err: string }> {
    const main = join(ROOT, 'controller', 'cli', 'src', 'main.ts');
    const { controller, rest, dir } = this.world;
    const env = {
      PATH: process.env.PATH,
      VIRTKEEP_URL: controller.url,
      VIRTKEEP_TOKEN: rest.token,
      VIRTKEEP_CA: controller.caFile,
    };
    const child = spawn(NODE_BIN, [main, ...args], { env, cwd: dir });
    child.stdin.end(input);
    const ended = new Promise<number | null>(resolve => child.on('close', resolve));
    const [code, out, err] = await Promise.all([ended, text(child.stdout), text(child.stderr)]);
    return { code, out, err };
  }
}
