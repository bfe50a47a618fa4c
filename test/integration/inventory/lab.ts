/** A lab node with the agent's model of it in this process: inventory, backup files, runner and two services, no gRPC. */
import { join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type {
  Domain,
  DomainServiceImplementation,
  GuestInfo,
  PowerAction,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { PoolServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import { createLogger, type Logger, logLine } from '@virtkeep/shared/log';
import { Metadata } from 'nice-grpc-common';
import { openArchive } from '../../../agent/src/archive/index.ts';
import { judgedAs } from '../../../agent/src/archive/test-kit.ts';
import { Claims } from '../../../agent/src/claims.ts';
import { domainService } from '../../../agent/src/grpc/domain-service.ts';
import { poolService } from '../../../agent/src/grpc/pool-service.ts';
import { domainLocks } from '../../../agent/src/grpc/start-operation.ts';
import { Inventory } from '../../../agent/src/inventory/index.ts';
import { LibvirtLink } from '../../../agent/src/libvirt/link.ts';
import { Faults } from '../../../agent/src/operations/faults.ts';
import { Journal } from '../../../agent/src/operations/journal.ts';
import { OperationRunner } from '../../../agent/src/operations/runner.ts';
import { NO_OTHER_NODES } from '../../../agent/src/other-nodes.ts';
import { BackupFiles, PathGate } from '../../../agent/src/pools/index.ts';
import { summaryOf } from '../../../agent/src/workflows/archives/backup-file.ts';
import type { WorkflowDependencies } from '../../../agent/src/workflows/dependencies.ts';
import { refuseStaleCopies } from '../../../agent/src/workflows/domain/stale-copy.ts';
import { undoEffects } from '../../../agent/src/workflows/undo/recover.ts';
import { ZfsDriver } from '../../../agent/src/zfs/index.ts';
import { waitFor } from '../../lab/run.ts';
import { startWorld, type World } from '../../lab/world.ts';

/** Services take a call's context and use none of it here. */
export const CALL = { metadata: Metadata(), signal: new AbortController().signal } as Parameters<
  DomainServiceImplementation['list']
>[1];
export const NODE_ID = '99999999-2222-4333-8444-555555555555';

/** So many of the last lines of the log are told by a test that waited in vain. */
const RECENT_LINES = 60;

export class InventoryLab {
  readonly world: World;
  readonly link: LibvirtLink;
  readonly journal: Journal;
  readonly backupFiles: BackupFiles;
  readonly inventory: Inventory;
  readonly runner: OperationRunner;
  readonly domains: DomainServiceImplementation;
  readonly pools: PoolServiceImplementation;
  readonly workflows: WorkflowDependencies;
  /** The last lines of the log of what works on domains; most tests here are of refusals, so it is shown by those that fail. */
  readonly recent: string[] = [];
  /** What guests told of themselves, when a test has that part of the agent too. */
  guestInfo: ((domainId: string) => GuestInfo | undefined) | undefined;

  private constructor(world: World, refreshMs: number) {
    this.world = world;
    this.link = this.newLink();
    this.journal = new Journal(join(world.dir, 'journal.db'));
    const { settings } = this.journal;
    const zfs = new ZfsDriver();
    this.backupFiles = new BackupFiles(readArchive);
    this.inventory = this.newInventory(this.link, refreshMs);
    this.workflows = {
      libvirt: () => this.link.get(),
      pools: signal => this.inventory.pools(signal),
      zfs,
      otherNodes: NO_OTHER_NODES,
      claims: new Claims(),
      pendingEffects: type => this.journal.pendingEffects(type),
      judge: judgedAs('own'),
      filesChanged: id => this.inventory.filesChanged(id),
      log: logOf(this.recent),
      version: '0.0.0-test',
      nodeName: world.node.name,
      nvramDirectory: join(world.node.dir, 'lib', 'qemu', 'nvram'),
      swtpmDirectory: join(world.node.dir, 'lib', 'swtpm'),
      saveDirectory: join(world.node.dir, 'lib', 'qemu', 'save'),
      mergeBandwidthMiB: 0,
    };
    this.runner = this.newRunner(this.journal);
    const { inventory, backupFiles, runner, workflows } = this;
    this.domains = domainService({ inventory, runner, workflows });
    this.pools = poolService({ inventory, backupFiles, runner, settings, workflows });
  }

  newLink(): LibvirtLink {
    const keepAlive = { intervalSec: 5, count: 5 };
    return new LibvirtLink({ uri: this.world.node.uri, keepAlive, log: logOf() });
  }

  /** An inventory as another run of the agent would have it. */
  newInventory(link: LibvirtLink, refreshMs = 60_000): Inventory {
    return new Inventory({
      link,
      nodeId: NODE_ID,
      nodeName: this.world.node.name,
      settings: this.journal.settings,
      zfs: new ZfsDriver(),
      backupFiles: this.backupFiles,
      gate: new PathGate(),
      lockedBy: id => (this.runner.holderOf('domain', id) ?? this.runner.holderOf('power', id))?.operationId,
      hold: id => this.runner.holdWhenFree('watch_states', domainLocks(id, ['domain', 'power'])),
      guestInfo: id => this.guestInfo?.(id),
      log: logOf(),
      refreshMs,
    });
  }

  /** A runner as another run of the agent would have it. */
  newRunner(journal: Journal, faults = ''): OperationRunner {
    return new OperationRunner({
      journal,
      log: this.workflows.log,
      undoEffect: undoEffects(this.workflows),
      refuseCopies: (ids, signal) => refuseStaleCopies(this.workflows, ids, signal),
      faults: Faults.parse(faults),
      concurrentOperations: 2,
      locksChanged: () => this.inventory.locksChanged(),
    });
  }

  static async start(refreshMs = 60_000): Promise<InventoryLab> {
    const lab = new InventoryLab(await startWorld(), refreshMs);
    lab.inventory.start();
    await lab.link.open();
    await waitFor('the pools', () => lab.inventory.poolMessages().length >= 2, 180_000, 20);
    return lab;
  }

  async stop(): Promise<void> {
    this.runner.close();
    await this.inventory.stop();
    await this.link.close();
    this.journal.close();
    await this.world.stop();
  }

  /** Waits until the inventory shows a domain so. */
  domain(id: string, isSo: (domain: Domain) => boolean = () => true, timeoutMs = 120_000): Promise<Domain> {
    const find = () => this.inventory.domains().find(domain => domain.id === id && isSo(domain));
    return waitFor(`the domain ${id} in the inventory`, find, timeoutMs, 20);
  }

  /** Runs an operation to its end. @returns its result @throws its error with `msgKey` */
  async ended(started: Promise<unknown>, runner = this.runner): Promise<Record<string, unknown>> {
    const { id } = (await started) as Operation;
    for await (const { operation } of runner.watch(0, id, AbortSignal.timeout(200_000))) {
      if (operation!.state === OperationState.RUNNING) continue;
      const { error, resultJson } = operation!;
      if (error) throw Object.assign(new Error(error.detail), { msgKey: error.msgKey });
      return JSON.parse(resultJson) as Record<string, unknown>;
    }
    throw new Error('the operation vanished');
  }

  /** An operation that does nothing but hold a domain until it is released. */
  hold(domainId: string, kinds: ('domain' | 'power')[]): { release: () => Promise<unknown> } {
    const gate = Promise.withResolvers<void>();
    const operation = this.runner.start({
      id: newId(),
      kind: 'backup',
      request: {},
      entities: [],
      cancellable: true,
      heavy: false,
      locks: kinds.map(kind => ({ kind, id: domainId, mode: 'exclusive' })),
      workflow: async context => {
        await gate.promise;
        context.commit();
      },
    });
    const release = () => {
      gate.resolve();
      return this.ended(Promise.resolve(operation));
    };
    return { release };
  }

  power(domainId: string, action: PowerAction, options: { force?: boolean; timeoutSeconds?: number } = {}) {
    const { force = false, timeoutSeconds = 90 } = options;
    return this.ended(
      this.domains.setPower({ operationId: newId(), domainId, action, force, timeoutSeconds }, CALL),
    );
  }

  remove(domainId: string, options: { full?: boolean; force?: boolean } = {}) {
    const { full = false, force = false } = options;
    return this.ended(this.domains.remove({ operationId: newId(), domainId, full, force }, CALL));
  }
}

function logOf(lines: string[] = []): Logger {
  if (process.env.VIRTKEEP_TEST_LOG) return createLogger('test', 'debug');
  const write = (level: string) => (message: string, more?: object) => {
    lines.push(logLine({ level, message, timestamp: new Date().toISOString(), ...more }));
    lines.splice(0, lines.length - RECENT_LINES);
  };
  const levels = ['error', 'warn', 'info', 'debug'];
  const log = Object.fromEntries(levels.map(level => [level, write(level)]));
  return Object.assign(log, { child: () => log }) as unknown as Logger;
}

async function readArchive(path: string, signal: AbortSignal) {
  const archive = await openArchive(path, signal);
  try {
    if (archive.manifest) return summaryOf(archive.manifest);
    throw new VirtkeepError('archive_unsupported', { path, reason: 'it was not written by this service' });
  } finally {
    await archive.close();
  }
}
