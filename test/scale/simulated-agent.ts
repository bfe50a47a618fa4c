/**
 * An agent without a hypervisor, of which a process has many: a real gRPC server with mutual TLS, an inventory made from numbers, scans
 * that find the files made from them, and operations that tell how far they are. What an agent does, the tests with real ones say.
 */
import { ServerCredentials } from '@grpc/grpc-js';
import { VirtkeepError } from '@virtkeep/shared/errors';
import {
  BackupServiceDefinition,
  type BackupServiceImplementation,
  type StartBackupRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import {
  type Domain,
  DomainServiceDefinition,
  type DomainServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import {
  type InventoryEvent,
  NodeInfo,
  NodeServiceDefinition,
  type NodeServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import {
  Operation,
  type OperationEvent,
  OperationServiceDefinition,
  type OperationServiceImplementation,
  OperationState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import {
  BackupFile,
  PoolServiceDefinition,
  type PoolServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { errorServerMiddleware } from '@virtkeep/shared/grpc-status';
import { type Result, resultFields } from '@virtkeep/shared/operation-result';
import { type CallContext, createServer, type Server, ServerError, Status } from 'nice-grpc';
import { errorDetailsServerMiddleware } from 'nice-grpc-error-details';
import { epochMiddleware } from '../../agent/src/grpc/epochs.ts';
import { filePieces } from '../../agent/src/grpc/file-pieces.ts';
import { peerInterceptor } from '../../agent/src/grpc/peer.ts';
import { domainOf, idOf, nameOf, ownFiles, ownPool, poolsOf, SHARED_POOL, sharedFiles } from './seeded.ts';

export interface AgentTls {
  caPem: string;
  certificatePem: string;
  privateKeyPem: string;
}

export interface InstallationSize {
  nodes: number;
  vms: number;
}

/** How a backup goes on; undefined: as it is told by `progress` and `succeed`. */
export interface BackupPace {
  steps: number;
  stepMs: number;
}

/** Events that are kept for who connects again. */
const KEPT_EVENTS = 2000;

export class SimulatedAgent {
  readonly id: string;
  readonly number: number;
  pace: BackupPace | undefined;
  /** Hears of each operation that was started. */
  started: (operation: Operation) => void = () => {};
  readonly operations = new Map<string, Operation>();
  /** Ids that a controller has given up as not begun. */
  readonly #refused = new Set<string>();
  readonly #size: InstallationSize;
  readonly #requests = new Map<string, StartBackupRequest>();
  readonly #made: BackupFile[] = [];
  /** How often each VM has changed. */
  readonly #changes = new Map<number, number>();
  readonly #inventory = new Stream<InventoryEvent>();
  readonly #events = new Stream<OperationEvent>();
  #history: OperationEvent[] = [];
  #revision = 1n;
  #sequence = 0n;
  #server: Server | undefined;

  constructor(number: number, size: InstallationSize) {
    this.number = number;
    this.#size = size;
    this.id = idOf('node', number);
  }

  async start(tls: AgentTls, port: number, host = '127.0.0.1'): Promise<void> {
    const epochs = new Map<string, unknown>();
    const server = createServer({ interceptors: [peerInterceptor] } as object)
      .use(errorDetailsServerMiddleware)
      .use(errorServerMiddleware(() => {}))
      .use(epochMiddleware({ get: key => epochs.get(key), set: (key, value) => epochs.set(key, value) }));
    server.add(
      NodeServiceDefinition,
      whole(NodeServiceDefinition, this.#nodeService()) as NodeServiceImplementation,
    );
    server.add(
      DomainServiceDefinition,
      whole(DomainServiceDefinition, this.#domainService()) as DomainServiceImplementation,
    );
    server.add(
      PoolServiceDefinition,
      whole(PoolServiceDefinition, this.#poolService()) as PoolServiceImplementation,
    );
    server.add(
      BackupServiceDefinition,
      whole(BackupServiceDefinition, this.#backupService()) as BackupServiceImplementation,
    );
    server.add(OperationServiceDefinition, this.#operationService());
    const pair = { cert_chain: Buffer.from(tls.certificatePem), private_key: Buffer.from(tls.privateKeyPem) };
    const credentials = ServerCredentials.createSsl(Buffer.from(tls.caPem), [pair], true);
    await server.listen(`${host}:${port}`, credentials);
    this.#server = server;
  }

  /** Every connection is cut. */
  stop(): void {
    this.#server?.forceShutdown();
    this.#server = undefined;
  }

  /** A VM changes, and this is told. @returns it as it is now */
  change(vm: number): Domain {
    this.#changes.set(vm, (this.#changes.get(vm) ?? 0) + 1);
    this.#revision += 1n;
    const domain = this.domain(vm);
    this.#inventory.push({ event: { $case: 'domainChanged', value: domain }, revision: this.#revision });
    return domain;
  }

  domain(vm: number): Domain {
    return domainOf(this.number, vm, this.#changes.get(vm));
  }

  progress(id: string, bytesDone: number, bytesTotal = 100): void {
    const bytes = { bytesDone: BigInt(bytesDone), bytesTotal: BigInt(bytesTotal) };
    const progress = { phase: 'copy', ...bytes, rate: 1n, message: '' };
    this.#update(id, { progress });
  }

  /** A backup has made its file. */
  succeed(id: string): void {
    const request = this.#requests.get(id)!;
    const vm = this.#vmOf(request.domainId);
    const filename = `${request.domainId}_${request.fileId}.tar`;
    const file = BackupFile.fromPartial({
      id: request.fileId,
      archiveId: request.fileId,
      poolId: request.poolId,
      filename,
      path: `/pools/made/${filename}`,
      size: 2n ** 30n,
      type: 'tar',
      domainId: request.domainId,
      domainName: nameOf(this.number, vm),
      created: new Date(),
      states: [{ number: 1, name: 'backup', created: new Date(), memory: false, consistency: 'quiesced' }],
    });
    this.#made.push(file);
    this.#requests.delete(id);
    this.#end(id, { $case: 'backup', value: { file, state: 1 } });
  }

  /** What a scan of the pool finds. */
  filesOf(poolId: string): BackupFile[] {
    const { nodes, vms } = this.#size;
    const seeded = poolId === SHARED_POOL ? sharedFiles(nodes, vms) : ownFiles(this.number, vms);
    return [...seeded, ...this.#made.filter(file => file.poolId === poolId)];
  }

  #vmOf(domainId: string): number {
    return Number(domainId.slice(-12));
  }

  #update(id: string, change: Partial<Operation>): Operation {
    this.#sequence += 1n;
    const operation = { ...this.operations.get(id)!, ...change, sequence: this.#sequence };
    this.operations.set(id, operation);
    const event = { sequence: this.#sequence, operation };
    this.#history.push(event);
    if (this.#history.length > KEPT_EVENTS) this.#history = this.#history.slice(-KEPT_EVENTS / 2);
    this.#events.push(event);
    return operation;
  }

  #end(id: string, result: Result): void {
    this.#update(id, {
      state: OperationState.SUCCEEDED,
      finished: new Date(),
      cancellable: false,
      inventoryRevision: this.#revision,
      ...resultFields(result),
    });
  }

  #begin(
    kind: string,
    id: string,
    entities: Operation['entities'],
  ): { operation: Operation; isNew: boolean } {
    const present = this.operations.get(id);
    if (present) return { operation: present, isNew: false };
    if (this.#refused.has(id)) throw new VirtkeepError('canceled');
    const state = OperationState.RUNNING;
    const operation = Operation.fromPartial({
      id,
      kind,
      state,
      entities,
      created: new Date(),
      cancellable: true,
    });
    this.operations.set(id, operation);
    const begun = this.#update(id, {});
    this.started(begun);
    return { operation: begun, isNew: true };
  }

  #nodeService(): Partial<NodeServiceImplementation> {
    const agent = this;
    const { vms } = this.#size;
    const node = NodeInfo.fromPartial({
      id: this.id,
      hostname: `node-${this.number}`,
      version: '0.1.0',
      libvirtVersion: '9.0.0',
      emulatorVersion: '7.2.0',
      cpuCount: 64,
      memoryCount: 262_144n,
      libvirtConnected: true,
    });
    return {
      getInfo: async () => node,
      async *watchInventory(_request: object, { signal }: CallContext) {
        const changes = agent.#inventory.read(signal);
        const domains = Array.from({ length: vms }, (_, vm) => agent.domain(vm));
        yield {
          event: { $case: 'full' as const, value: { node, domains, pools: poolsOf(agent.number) } },
          revision: agent.#revision,
        };
        yield* changes;
      },
      async *watchQuestions(_request: object, { signal }: CallContext) {
        yield* new Stream<never>().read(signal);
      },
      answerQuestion: async () => ({}),
      findUses: async ({ things }) => ({ found: things.map(() => ({ use: undefined, unsure: '' })) }),
      revoke: async ({ revocations }) => ({ revocations }),
    };
  }

  #domainService(): Partial<DomainServiceImplementation> {
    return { get: async ({ id }) => this.domain(this.#vmOf(id ?? '')) };
  }

  #poolService(): Partial<PoolServiceImplementation> {
    const pools = poolsOf(this.number);
    const agent = this;
    return {
      list: async () => ({ pools }),
      get: async ({ id }) => pools.find(pool => pool.id === id)!,
      update: async ({ id }) => pools.find(pool => pool.id === id)!,
      scan: async ({ operationId, poolId, filesApart }) => {
        const entities = [{ id: poolId!, entityClass: EntityClass.DATA_POOL }];
        const { operation, isNew } = this.#begin('scan_pool', operationId!, entities);
        if (isNew)
          setImmediate(() => {
            const files = this.filesOf(poolId!);
            this.#end(
              operation.id,
              filesApart
                ? { $case: 'scanApart', value: { count: files.length } }
                : { $case: 'scanPool', value: { files } },
            );
          });
        return operation;
      },
      async *streamFiles({ poolId }) {
        yield* filePieces(agent.filesOf(poolId!));
      },
    };
  }

  #backupService(): Partial<BackupServiceImplementation> {
    return {
      start: async request => {
        const entities = [
          { id: request.fileId, entityClass: EntityClass.FILE },
          { id: request.domainId, entityClass: EntityClass.DOMAIN },
        ];
        this.#requests.set(request.operationId, {
          ...request,
          poolId: request.poolId || ownPool(this.number),
        });
        const { operation, isNew } = this.#begin('backup', request.operationId, entities);
        if (isNew && this.pace) this.#goOn(operation.id, this.pace);
        return operation;
      },
      show: async () => {
        throw new VirtkeepError('archive_damaged', { path: 'x', reason: 'simulated' });
      },
    };
  }

  #goOn(id: string, { steps, stepMs }: BackupPace): void {
    let step = 0;
    const timer = setInterval(() => {
      step += 1;
      if (step < steps) return this.progress(id, Math.floor((100 * step) / steps));
      clearInterval(timer);
      this.succeed(id);
    }, stepMs);
  }

  #operationService(): OperationServiceImplementation {
    const agent = this;
    const find = (id: string): Operation => {
      const found = agent.operations.get(id);
      if (!found) throw new VirtkeepError('operation_not_found', { id });
      return found;
    };
    return {
      get: async ({ id = '', refuseUnknown }) => {
        if (refuseUnknown && !agent.operations.has(id)) agent.#refused.add(id);
        return find(id);
      },
      list: async ({ running }) => ({
        operations: [...agent.operations.values()].filter(
          ({ state }) => !running || state === OperationState.RUNNING,
        ),
        sequence: agent.#sequence,
      }),
      async *watch({ afterSequence = 0n }, { signal }) {
        const news = agent.#events.read(signal);
        const missed = agent.#history.filter(({ sequence }) => sequence > afterSequence);
        yield* missed;
        for await (const event of news) if (event.sequence > (missed.at(-1)?.sequence ?? 0n)) yield event;
      },
      cancel: async ({ id }) => {
        find(id ?? '');
        const { msgKey, code, message: detail, params } = new VirtkeepError('canceled');
        const error = { msgKey, code, detail, params };
        return agent.#update(id ?? '', { state: OperationState.CANCELED, finished: new Date(), error });
      },
    };
  }
}

/** With the methods that nobody calls here. */
function whole(definition: { methods: object }, part: object): object {
  const none = () => {
    throw new ServerError(Status.UNIMPLEMENTED, 'not simulated');
  };
  return { ...Object.fromEntries(Object.keys(definition.methods).map(name => [name, none])), ...part };
}

/** What is pushed goes to all who read it then. */
class Stream<T> {
  readonly #readers = new Set<{ queue: T[]; wake: () => void }>();

  push(item: T): void {
    for (const reader of this.#readers) {
      reader.queue.push(item);
      reader.wake();
    }
  }

  /** From now on, not only from the first look. */
  read(signal: AbortSignal): AsyncGenerator<T> {
    const reader = { queue: [] as T[], wake: () => {} };
    this.#readers.add(reader);
    signal.addEventListener('abort', () => reader.wake());
    const readers = this.#readers;
    return (async function* () {
      try {
        while (!signal.aborted) {
          for (let item = reader.queue.shift(); item !== undefined; item = reader.queue.shift()) yield item;
          await new Promise<void>(resolve => {
            reader.wake = resolve;
            if (reader.queue.length > 0 || signal.aborted) resolve();
          });
        }
      } finally {
        readers.delete(reader);
      }
    })();
  }
}
