/** A controller's REST server and a node whose uploads are the agent's own, on real directories, without a hypervisor. */
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { newId } from '@virtkeep/shared/ids';
import { operationService } from '../../../agent/src/grpc/operation-service.ts';
import { uploadService } from '../../../agent/src/grpc/upload-service.ts';
import { Faults } from '../../../agent/src/operations/faults.ts';
import { Journal } from '../../../agent/src/operations/journal.ts';
import { OperationRunner } from '../../../agent/src/operations/runner.ts';
import { BackupFiles, type PoolRecord } from '../../../agent/src/pools/index.ts';
import { Uploads } from '../../../agent/src/workflows/files/upload/index.ts';
import { undoEffects } from '../../../agent/src/workflows/undo/recover.ts';
import { silent, World } from '../../model/world.ts';
import { makeRestApp, type RestApp } from './app.ts';
import { enrolled, stopAll, until } from './nodes-world.ts';
import { FakeAgent } from './scripted-node.ts';

export const HOUR_MS = 3_600_000;

export class UploadNode {
  readonly rest: RestApp;
  readonly agent = new FakeAgent();
  readonly runner: OperationRunner;
  readonly uploads: Uploads;
  /** The node's steady clock. */
  readonly clock = { bootId: 'boot', atMs: 0 };
  /** Where the controller listens. */
  url = '';
  readonly #world = new World();
  readonly #journal: Journal;
  readonly #pools: PoolRecord[] = [];
  readonly #files = new BackupFiles(async () => ({}));

  private constructor(rest: RestApp) {
    this.rest = rest;
    this.#journal = new Journal(join(this.#world.root, 'journal.db'));
    this.runner = new OperationRunner({
      journal: this.#journal,
      log: silent,
      undoEffect: undoEffects(this.#world.dependencies),
      refuseCopies: async () => {},
      faults: Faults.parse(''),
      concurrentOperations: 1,
      locksChanged: () => {},
    });
    this.uploads = this.uploadsAnew();
    this.agent.uploads = uploadService(this.runner, this.uploads);
    this.agent.runOperations = operationService(this.runner);
  }

  /** The node is enrolled, and the controller listens. An upload is given up after an hour. */
  static async start(): Promise<UploadNode> {
    const rest = await makeRestApp({ tls: { mode: 'off' } });
    const node = await UploadNode.of(rest);
    await rest.app.listen({ host: '127.0.0.1', port: 0 });
    node.url = `http://127.0.0.1:${node.port}`;
    return node;
  }

  /** The node is enrolled at this controller. */
  static async of(rest: RestApp, name = 'n1'): Promise<UploadNode> {
    const node = new UploadNode(rest);
    await enrolled(rest, name, node.agent);
    return node;
  }

  get port(): number {
    return (this.rest.app.server.address() as AddressInfo).port;
  }

  /** What the node has of uploads on its disk, as an agent that starts reads it. */
  uploadsAnew(): Uploads {
    return new Uploads({
      ...this.#world.dependencies,
      pools: async () => this.#pools,
      settings: this.#journal.settings,
      expiryMs: HOUR_MS,
      now: () => ({ ...this.clock }),
      look: async ({ poolId: id, poolPath: path, filename }, signal) => {
        await this.#files.refresh({ id, path }, { signal });
        return this.#files.files(id).find(file => file.filename === filename);
      },
    });
  }

  /**
   * A pool of the node, which the controller knows.
   * @param told what the node has told the controller of it, when that is something else
   */
  async addPool(path: string, given: Partial<PoolRecord> = {}, told = given): Promise<PoolRecord> {
    const made = { ...this.#world.poolRecord, id: newId(), name: 'backups', path, ...given };
    this.#pools.push(made);
    const { name = made.name, readonly = false, outside = false, mounted = true } = told;
    this.agent.setPool({ id: made.id, name, path, readonly, outside, mounted });
    await until(async () => (await this.rest.call('GET', `/api/data-pools/${made.id}/`)).status === 200);
    return made;
  }

  /** With the controller. */
  async stop(): Promise<void> {
    await this.leave(() => stopAll(this.rest));
  }

  /** @param between done when it does nothing any more */
  async leave(between: () => Promise<void> = async () => {}): Promise<void> {
    this.uploads.pause();
    await until(() => this.runner.activeCount === 0);
    await between();
    this.runner.close();
    this.#journal.close();
    this.#world.remove();
  }
}
