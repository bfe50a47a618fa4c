/** A lab node with the agent's workflows in this process: the real runner and journal, no gRPC. */
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { connect, type Libvirt } from '@virtkeep/node-libvirt';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { createLogger, type Logger } from '@virtkeep/shared/log';
import { judgedAs } from '../../../agent/src/archive/test-kit.ts';
import { Claims } from '../../../agent/src/claims.ts';
import { Faults } from '../../../agent/src/operations/faults.ts';
import { Journal } from '../../../agent/src/operations/journal.ts';
import { OperationRunner } from '../../../agent/src/operations/runner.ts';
import { NO_OTHER_NODES } from '../../../agent/src/other-nodes.ts';
import { BACKUPS_DIR, type PoolRecord } from '../../../agent/src/pools/index.ts';
import { samplePool } from '../../../agent/src/pools/sample-pool.ts';
import { backupWorkflow } from '../../../agent/src/workflows/backup/backup.ts';
import type { Workflow } from '../../../agent/src/workflows/context.ts';
import type { WorkflowDependencies } from '../../../agent/src/workflows/dependencies.ts';
import { refuseStaleCopies } from '../../../agent/src/workflows/domain/stale-copy.ts';
import { restoreWorkflow } from '../../../agent/src/workflows/restore/restore.ts';
import { undoEffects } from '../../../agent/src/workflows/undo/recover.ts';
import { ZfsDriver } from '../../../agent/src/zfs/index.ts';
import type { Guest } from '../../lab/guest.ts';
import { startWorld, type World } from '../../lab/world.ts';

export class WorkflowLab {
  readonly world: World;
  readonly libvirt: Libvirt;
  readonly journal: Journal;
  runner: OperationRunner;
  readonly dependencies: WorkflowDependencies;
  /** Change of a pool's record, by its name: a test makes one read-only, say. */
  readonly poolChanges = new Map<string, Partial<PoolRecord>>();

  /** What the next backup calls when its archive is published and its disks are still frozen. */
  whileFrozen: ((archivePath: string) => Promise<void>) | undefined;

  private constructor(world: World, libvirt: Libvirt) {
    this.world = world;
    this.libvirt = libvirt;
    this.journal = new Journal(join(world.dir, 'journal.db'));
    const log = process.env.VIRTKEEP_TEST_LOG ? createLogger('test', 'debug') : silent;
    this.dependencies = {
      libvirt: () => libvirt,
      pools: async () => this.#pools(),
      zfs: new ZfsDriver(),
      otherNodes: NO_OTHER_NODES,
      claims: new Claims(),
      pendingEffects: type => this.journal.pendingEffects(type),
      judge: judgedAs('own'),
      filesChanged: () => {},
      log,
      version: '0.0.0-test',
      nodeName: world.node.name,
      nvramDirectory: join(world.dir, 'nvram'),
      swtpmDirectory: join(world.node.dir, 'lib', 'swtpm'),
      saveDirectory: join(world.node.dir, 'lib', 'qemu', 'save'),
      mergeBandwidthMiB: 0,
      settings: this.journal.settings,
    };
    this.runner = this.#newRunner('');
  }

  /** @param dir of the caller's own, which stays: what is in it from a lab of before is taken up */
  static async start(dir?: string): Promise<WorkflowLab> {
    const world = await startWorld(dir === undefined ? {} : { dir });
    mkdirSync(join(world.dir, 'nvram'), { recursive: true });
    return new WorkflowLab(world, await connect(world.node.uri));
  }

  /** As power lost does it: everything ends, and the files stay. Only of a lab with a directory of the caller's. */
  async cut(): Promise<void> {
    for (const node of this.world.nodes) await node.stop();
    this.runner.close();
    this.journal.close();
    await this.libvirt.close().catch(() => {});
  }

  async stop(): Promise<void> {
    this.runner.close();
    this.journal.close();
    await this.libvirt.close();
    await this.world.stop();
  }

  /** Further operations meet these faults (the text of VIRTKEEP_FAULTS), and end although an undo fails so long. */
  inject(faults: string, patienceMs?: number): void {
    this.runner.close();
    this.runner = this.#newRunner(faults, patienceMs);
  }

  #newRunner(faults: string, patienceMs?: number): OperationRunner {
    const { journal, dependencies } = this;
    return new OperationRunner({
      journal,
      ...(patienceMs === undefined ? {} : { times: { patienceMs } }),
      log: dependencies.log,
      undoEffect: undoEffects(dependencies),
      refuseCopies: (ids, signal) => refuseStaleCopies(dependencies, ids, signal),
      faults: Faults.parse(faults),
      concurrentOperations: 2,
    });
  }

  /** Runs a workflow to its end. @throws the operation's error as `{ msgKey, message }` */
  async run(kind: string, workflow: Workflow, locks: string[] = []): Promise<Operation> {
    const id = newId();
    this.runner.start({
      id,
      kind,
      request: { id },
      entities: [],
      locks: locks.map(lock => ({ kind: 'domain', id: lock, mode: 'exclusive' })),
      cancellable: true,
      workflow,
    });
    return this.ended(id);
  }

  async ended(id: string): Promise<Operation> {
    for await (const { operation } of this.runner.watch(0, id, AbortSignal.timeout(280_000))) {
      if (operation!.state === OperationState.RUNNING) continue;
      if (operation!.error)
        throw Object.assign(new Error(operation!.error.detail), { msgKey: operation!.error.msgKey });
      return operation!;
    }
    throw new Error('the operation vanished');
  }

  async backup(guest: Guest, request: Partial<StartBackupRequest> = {}) {
    const domainId = await guest.uuid();
    const full = StartBackupRequest.fromPartial({
      domainId,
      fileId: newId(),
      poolId: this.world.node.pool(1).uuid,
      ...request,
    });
    const { whileFrozen } = this;
    this.whileFrozen = undefined;
    const workflow = backupWorkflow(this.dependencies, full);
    const operation = await this.run('backup', whileFrozen ? beforeMerge(workflow, whileFrozen) : workflow, [
      domainId,
    ]);
    const { file } = JSON.parse(operation.resultJson) as {
      file: { path: string; filename: string; id: string };
    };
    return {
      operation,
      file,
      path: file.path,
      manifest: JSON.parse((file as unknown as { manifestJson: string }).manifestJson),
    };
  }

  async restore(file: Pick<BackupFile, 'filename'>, request: Partial<StartRestoreRequest> = {}) {
    const full = StartRestoreRequest.fromPartial({
      file: { poolId: this.world.node.pool(1).uuid, filename: file.filename },
      domainId: newId(),
      ...request,
    });
    const operation = await this.run('restore', restoreWorkflow(this.dependencies, full));
    return { operation, result: JSON.parse(operation.resultJson) as RestoreResult };
  }

  /** Names of all files of a pool, `backups/` included, sorted. */
  files(pool: number): string[] {
    const { path } = this.world.node.pool(pool);
    const backups = join(path, BACKUPS_DIR);
    return [...readdirSync(path), ...(existsSync(backups) ? readdirSync(backups) : [])].sort();
  }

  #pools(): PoolRecord[] {
    return this.world.node.pools.map(({ uuid: id, name, path }, index) =>
      samplePool(name, { id, path, isBase: index === 0, ...this.poolChanges.get(name) }),
    );
  }
}

const quiet = () => silent;
/** Failures are what many tests are about: they look at the operation, not at the log. */
const silent = { error: quiet, warn: quiet, info: quiet, debug: quiet, child: quiet } as unknown as Logger;

/** The workflow, with something done between its commit and its merge. */
function beforeMerge(workflow: Workflow, work: (archivePath: string) => Promise<void>): Workflow {
  return context => {
    let path = '';
    return workflow({
      ...context,
      commit: result => {
        if (result?.$case === 'backup') path = result.value.file!.path;
        context.commit(result);
      },
      step: async (name, run) => {
        if (name === 'merge') await work(path);
        return context.step(name, run);
      },
    });
  };
}

export interface RestoreResult {
  domain_id: string;
  name: string;
  disks: { id: string; path: string; pool_id: string; target_dev: string }[];
  warnings: string[];
  pool_changed: boolean;
}
