/**
 * A scripted stand-in for an agent: a real gRPC server with mutual TLS on loopback, but no hypervisor behind it. For
 * the cases a real agent cannot be brought into at will: a node that vanishes, answers late, or comes back without its
 * journal. What a real agent does is tested with a real one (test/integration).
 */

import { randomUUID } from 'node:crypto';
import { ServerCredentials } from '@grpc/grpc-js';
import { VirtkeepError } from '@virtkeep/shared/errors';
import {
  BackupServiceDefinition,
  type BackupServiceImplementation,
  type DownloadBackupRequest,
  ShowBackupResponse,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import {
  DiskServiceDefinition,
  type DiskServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import {
  AgentState,
  Domain,
  DomainServiceDefinition,
  type DomainServiceImplementation,
  GuestInfo,
  PowerState,
  SavedState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import {
  type GuestCommand,
  GuestServiceDefinition,
  type GuestServiceImplementation,
  type Preparation,
  type RunGuestCommandRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import {
  ImageServiceDefinition,
  type ImageServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/image';
import {
  type FoundUse,
  type InventoryEvent,
  NodeInfo,
  NodeServiceDefinition,
  type NodeServiceImplementation,
  type Revocation,
  type Thing,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import {
  Operation,
  type OperationEvent,
  OperationServiceDefinition,
  type OperationServiceImplementation,
  OperationState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { ScanResult } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation_result';
import {
  BackupFile,
  type ListFilesRequest,
  Pool,
  PoolServiceDefinition,
  type PoolServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import {
  RestoreServiceDefinition,
  type RestoreServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import {
  SnapshotServiceDefinition,
  type SnapshotServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import {
  TemplateServiceDefinition,
  type TemplateServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import {
  UploadServiceDefinition,
  type UploadServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { errorServerMiddleware } from '@virtkeep/shared/grpc-status';
import { type Result, type ResultCase, resultFields, resultOf } from '@virtkeep/shared/operation-result';
import { createServer, type Server, ServerError, Status } from 'nice-grpc';
import { errorDetailsServerMiddleware } from 'nice-grpc-error-details';
import { answerOf, thingMessage } from '../../../agent/src/grpc/question-messages.ts';
import { QuestionChannel } from '../../../agent/src/question-channel.ts';
import { freePort } from '../../lab/free-port.ts';

export interface FakeAgentTls {
  caPem: string;
  certificatePem: string;
  privateKeyPem: string;
}

/** A start call as the controller sent it. */
export interface StartedCall {
  kind: string;
  request: Record<string, unknown> & { operationId: string };
}

type Entities = { id: string; entityClass: EntityClass }[];

export class FakeAgent {
  readonly id: string;
  readonly info: NodeInfo;
  readonly domains = new Map<string, Domain>();
  readonly pools = new Map<string, Pool>();
  readonly files = new Map<string, BackupFile>();
  readonly operations = new Map<string, Operation>();
  /** What is told apart of a pool, which its last scan has found. */
  readonly scanned = new Map<string, BackupFile[]>();
  /** Runs before files are told apart; may wait, or throw. */
  beforeFiles: () => Promise<void> | void = () => {};
  /** Every start call that arrived, repeated ones too. */
  readonly calls: StartedCall[] = [];
  /** Runs before a start call is taken; may wait, or throw to refuse it. */
  beforeStart: (call: StartedCall) => Promise<void> | void = () => {};
  /** Runs once for each operation when it has begun; may end it. */
  whenStarted: (call: StartedCall) => void = () => {};
  /** Runs after a start call was taken and before it is answered: a lost answer is a throw here. */
  afterStart: (call: StartedCall) => Promise<void> | void = () => {};
  /** What it says when it is asked for an operation; may wait. */
  toldOperation: (id: string) => Promise<Operation> | Operation = id => this.#operation(id);
  /** What the agents in all guests offer. */
  guestCommands: GuestCommand[] = [];
  /** What its virt-sysprep can do. */
  preparations: Preparation[] = [];
  /** Runs a guest's command; its value as JSON. */
  runGuestCommand: (request: RunGuestCommandRequest, signal: AbortSignal) => Promise<string> = async () =>
    '{}';
  /** What the guests tell when they are asked now, and the keys they have, by user. */
  freshGuestInfo: GuestInfo | undefined;
  readonly sshKeys = new Map<string, string[]>();
  show: ShowBackupResponse | undefined;
  /** Without `show` it shows the files that it has, and finds no others. */
  showsFiles = false;
  /** The bytes of files, by file name; of members, by `<file name>#<member>`. */
  readonly contents = new Map<string, Buffer>();
  /** ISO images; undefined: an agent of the version before, which has none. */
  images: ImageServiceImplementation | undefined;
  /** Uploads of backup files; undefined: an agent of the version before. */
  uploads: UploadServiceImplementation | undefined;
  /** Operations of a runner of the agent, in place of scripted ones. */
  runOperations: OperationServiceImplementation | undefined;
  /** A node that does not know the size of what it sends before its end. */
  sizesUnknown = false;
  /** Bytes in a chunk, and how many have left so far. */
  chunkBytes = 64 * 1024;
  sentBytes = 0;
  /** Downloads that are going on. */
  openDownloads = 0;
  /** Who uses a thing on this node; may wait, or throw. */
  useOf: (thing: Thing) => Promise<FoundUse['use']> | FoundUse['use'] = () => undefined;
  /** Why it cannot tell that it uses nothing. */
  unsure = '';
  /** Every thing it was asked for. */
  readonly askedFor: Thing[] = [];
  /** Asks the controller about the other nodes; of the latest connection. */
  questions: QuestionChannel | undefined;
  /** An agent of the version before, which knows nothing of questions. */
  asksNothing = false;
  /** An agent of the version before, which numbers no changes. */
  tellsRevisions = true;
  /** Changes of the inventory are told after this. */
  beforeChange: Promise<void> = Promise.resolve();
  /** What RenewCertificate answers, and what InstallCertificate got. */
  csrPem = '';
  /** What it was told of revoked certificates, and knows from before. */
  readonly revocations = new Map<string, Revocation>();
  installedPem = '';
  #sequence = 0n;
  #history: OperationEvent[] = [];
  #server: Server | undefined;
  #port = 0;
  #listeners = new Set<() => void>();
  #inventoryListeners = new Set<(event: InventoryEvent) => void>();
  #revision = 1n;

  constructor(id: string = randomUUID()) {
    this.id = id;
    this.info = NodeInfo.fromPartial({
      id,
      hostname: 'fake',
      version: '0.1.0',
      libvirtVersion: '9.0.0',
      emulatorVersion: '7.2.0',
      cpuCount: 2,
      memoryCount: 4096n,
      libvirtConnected: true,
    });
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  /** Listens on this port, by default on the one before `stop`, at first on a free one. */
  async start(tls: FakeAgentTls, port = this.#port): Promise<void> {
    const server = createServer()
      .use(errorDetailsServerMiddleware)
      .use(errorServerMiddleware(() => {}));
    server.add(NodeServiceDefinition, this.#nodeService());
    server.add(DomainServiceDefinition, this.#domainService());
    server.add(PoolServiceDefinition, this.#poolService());
    server.add(BackupServiceDefinition, this.#backupService());
    if (this.images) server.add(ImageServiceDefinition, this.images);
    if (this.uploads) server.add(UploadServiceDefinition, this.uploads);
    server.add(SnapshotServiceDefinition, this.#snapshotService());
    server.add(RestoreServiceDefinition, this.#restoreService());
    server.add(DiskServiceDefinition, this.#diskService());
    server.add(TemplateServiceDefinition, this.#templateService());
    server.add(GuestServiceDefinition, this.#guestService());
    server.add(OperationServiceDefinition, this.runOperations ?? this.#operationService());
    const pair = { cert_chain: Buffer.from(tls.certificatePem), private_key: Buffer.from(tls.privateKeyPem) };
    const credentials = ServerCredentials.createSsl(Buffer.from(tls.caPem), [pair], true);
    this.#port = await server.listen(`127.0.0.1:${port || (await freePort())}`, credentials);
    this.#server = server;
  }

  /** The node vanishes: every connection is cut. */
  async stop(): Promise<void> {
    this.#server?.forceShutdown();
    this.#server = undefined;
  }

  /** Forgets all operations, as an agent whose state directory was lost. */
  loseJournal(): void {
    this.operations.clear();
    this.#history = [];
    this.#sequence = 0n;
  }

  /** Tells something else of itself. */
  tellNode(change: Partial<NodeInfo>): void {
    Object.assign(this.info, change);
    this.#tell({ $case: 'nodeChanged', value: this.info });
  }

  setDomain(domain: Partial<Domain>): Domain {
    const id = domain.id ?? randomUUID();
    const whole = Domain.fromPartial({
      name: `vm-${id.slice(0, 8)}`,
      powerState: PowerState.RUNNING,
      agentState: AgentState.CONNECTED,
      memoryCount: 256n,
      cpuCount: 1,
      osType: 'Linux',
      persistent: true,
      ...this.domains.get(id),
      ...domain,
      id,
    });
    this.domains.set(id, whole);
    this.#tell({ $case: 'domainChanged', value: whole });
    return whole;
  }

  /** A saved state on top of the present one, as the inventory tells of it. */
  addState(domainId: string, state: Partial<SavedState> & { name: string }): SavedState {
    const before = this.domains.get(domainId)!.savedStates;
    const made = SavedState.fromPartial({
      id: randomUUID(),
      parent: before.find(one => one.current)?.name ?? '',
      created: new Date(),
      current: true,
      targets: ['vda'],
      ...state,
    });
    const savedStates = [...before.map(one => ({ ...one, current: false })), made];
    this.setDomain({ id: domainId, savedStates });
    return made;
  }

  removeDomain(id: string): void {
    this.domains.delete(id);
    this.#tell({ $case: 'domainRemoved', value: id });
  }

  setPool(pool: Partial<Pool>): Pool {
    const id = pool.id ?? randomUUID();
    const whole = Pool.fromPartial({
      name: `pool-${id.slice(0, 8)}`,
      type: 'local',
      path: `/pools/${id}`,
      active: true,
      mounted: true,
      capacity: 10_000_000_000n,
      allocation: 1_000_000_000n,
      available: 9_000_000_000n,
      backupTarget: true,
      ...this.pools.get(id),
      ...pool,
      id,
    });
    this.pools.set(id, whole);
    this.#tell({ $case: 'poolChanged', value: whole });
    return whole;
  }

  setFile(file: Partial<BackupFile> & { poolId: string }): BackupFile {
    const id = file.id ?? randomUUID();
    const filename = file.filename ?? `${id}.tar`;
    const path = `${this.pools.get(file.poolId)?.path ?? ''}/backups/${filename}`;
    const whole = BackupFile.fromPartial({
      type: 'tar',
      size: 1_048_576n,
      created: new Date(),
      states: [{ name: '1', created: new Date(), memory: false, consistency: 'quiesced' }],
      ...this.files.get(id),
      ...file,
      id,
      filename,
      path,
    });
    this.files.set(id, whole);
    return whole;
  }

  /** Changes an operation and tells the watchers. */
  update(id: string, change: Partial<Operation>): Operation {
    const present = this.operations.get(id);
    if (!present) throw new Error(`no operation ${id}`);
    const sequence = ++this.#sequence;
    const ended = change.state !== undefined && change.state !== OperationState.RUNNING;
    const inventoryRevision = ended ? this.#toldRevision : 0n;
    const operation = { ...present, inventoryRevision, ...change, sequence };
    this.operations.set(id, operation);
    this.#history.push({ sequence, operation });
    for (const wake of this.#listeners) wake();
    return operation;
  }

  progress(id: string, phase: string, bytesDone: bigint, bytesTotal: bigint): void {
    this.update(id, { progress: { phase, bytesDone, bytesTotal, rate: 1000n, message: '' } });
  }

  /** Tells what agents of before tell, as JSON, and besides it, unless `asBefore`, the message that agents tell today. */
  succeed(id: string, json: unknown = {}, { asBefore = false } = {}): void {
    const resultJson = JSON.stringify(json, (_key, value) =>
      typeof value === 'bigint' ? `${value}` : value,
    );
    const { kind } = this.operations.get(id)!;
    const poolId = this.calls.find(({ request }) => request.operationId === id && request.filesApart === true)
      ?.request.poolId as string | undefined;
    const told =
      poolId !== undefined && !asBefore
        ? this.#toldApart(poolId, ScanResult.fromJSON(JSON.parse(resultJson)))
        : { resultJson, result: asBefore ? undefined : messageOf(kind, resultJson) };
    this.update(id, { state: OperationState.SUCCEEDED, finished: new Date(), ...told, cancellable: false });
  }

  #toldApart(poolId: string, { files }: ScanResult): Pick<Operation, 'result' | 'resultJson'> {
    this.scanned.set(poolId, files);
    return resultFields({ $case: 'scanApart', value: { count: files.length } });
  }

  fail(id: string, error: VirtkeepError, warnings: string[] = []): void {
    const { msgKey, code, message: detail, params } = error;
    this.update(id, {
      state: OperationState.FAILED,
      finished: new Date(),
      error: { msgKey, code, detail, params },
      cancellable: false,
      warnings,
    });
  }

  /** The latest operation of a kind; waits for it. */
  async started(kind: string, timeoutMs = 120_000): Promise<Operation> {
    const end = Date.now() + timeoutMs;
    while (Date.now() < end) {
      const found = [...this.operations.values()].findLast(item => item.kind === kind);
      if (found) return found;
      await new Promise(resolve => setTimeout(resolve, 10));
    }
    throw new Error(`no ${kind} was started`);
  }

  async #start(kind: string, request: { operationId: string }, entities: Entities): Promise<Operation> {
    const call: StartedCall = { kind, request: { ...request } };
    this.calls.push(call);
    await this.beforeStart(call);
    if (!this.operations.has(request.operationId)) {
      const operation = Operation.fromPartial({
        id: request.operationId,
        kind,
        state: OperationState.RUNNING,
        entities,
        created: new Date(),
        cancellable: true,
      });
      this.operations.set(operation.id, operation);
      this.update(operation.id, {});
      this.whenStarted(call);
    }
    await this.afterStart(call);
    return this.operations.get(request.operationId)!;
  }

  #tell(event: NonNullable<InventoryEvent['event']>): void {
    this.#revision += 1n;
    const told = { event, revision: this.#toldRevision };
    for (const listener of this.#inventoryListeners) listener(told);
  }

  get #toldRevision(): bigint {
    return this.tellsRevisions ? this.#revision : 0n;
  }

  #nodeService(): NodeServiceImplementation {
    const agent = this;
    return {
      getInfo: async () => agent.info,
      async *watchInventory(_request, { signal }) {
        const queue: InventoryEvent[] = [];
        let wake = () => {};
        const listener = (event: InventoryEvent) => {
          queue.push(event);
          wake();
        };
        agent.#inventoryListeners.add(listener);
        signal.addEventListener('abort', () => wake());
        try {
          const domains = [...agent.domains.values()];
          yield {
            event: { $case: 'full', value: { node: agent.info, domains, pools: [...agent.pools.values()] } },
            revision: agent.#toldRevision,
          };
          while (!signal.aborted) {
            for (let event = queue.shift(); event; event = queue.shift()) {
              await agent.beforeChange;
              yield event;
            }
            await new Promise<void>(resolve => {
              wake = resolve;
              if (queue.length > 0 || signal.aborted) resolve();
            });
          }
        } finally {
          agent.#inventoryListeners.delete(listener);
        }
      },
      revoke: async ({ revocations }) => {
        for (const entry of revocations) this.revocations.set(entry.serial, entry);
        return { revocations: [...this.revocations.values()] };
      },
      renewCertificate: async () => ({ csrPem: agent.csrPem }),
      installCertificate: async request => {
        agent.installedPem = request.certificatePem;
        return {};
      },
      async *watchQuestions(_request, { signal }) {
        if (agent.asksNothing) throw new ServerError(Status.UNIMPLEMENTED, 'unknown method');
        const channel = new QuestionChannel();
        agent.questions = channel;
        for await (const { id, things } of channel.watch(signal))
          yield { id, things: things.map(thingMessage) };
      },
      answerQuestion: async ({ questionId, answers }) => {
        agent.questions?.answer(questionId, answers.map(answerOf));
        return {};
      },
      findUses: async ({ things }) => {
        if (agent.asksNothing) throw new ServerError(Status.UNIMPLEMENTED, 'unknown method');
        agent.askedFor.push(...things);
        return {
          found: await Promise.all(
            things.map(async thing => ({ use: await agent.useOf(thing), unsure: agent.unsure })),
          ),
        };
      },
    };
  }

  #domainService(): DomainServiceImplementation {
    const domain = (id: string): Domain => {
      const found = this.domains.get(id);
      if (!found) throw new VirtkeepError('domain_not_found', { id });
      return found;
    };
    const entities = (id: string): Entities => [{ id, entityClass: EntityClass.DOMAIN }];
    return {
      list: async () => ({ domains: [...this.domains.values()] }),
      get: async ({ id }) => domain(id),
      getXml: async ({ id }) => ({ xml: `<domain><uuid>${domain(id).id}</uuid></domain>` }),
      setPower: async request => this.#start('power', request, entities(request.domainId)),
      remove: async request => this.#start('remove_domain', request, entities(request.domainId)),
      rename: async request => this.#start('rename_domain', request, entities(request.domainId)),
      update: async ({ domainId, description, template }) =>
        this.setDomain({
          id: domain(domainId).id,
          ...(description === undefined ? {} : { description }),
          ...(template === undefined ? {} : { template }),
        }),
    };
  }

  #poolService(): PoolServiceImplementation {
    const agent = this;
    return {
      list: async () => ({ pools: [...this.pools.values()] }),
      get: async ({ id }) => this.pools.get(id)!,
      update: async ({ id, readonly, outside, description, isBase }) => {
        if (isBase) for (const pool of this.pools.values()) pool.isBase = false;
        return this.setPool({
          id,
          ...(readonly === undefined ? {} : { readonly }),
          ...(outside === undefined ? {} : { outside }),
          ...(description === undefined ? {} : { description }),
          ...(isBase === undefined ? {} : { isBase }),
        });
      },
      scan: async request =>
        this.#start('scan_pool', request, [{ id: request.poolId, entityClass: EntityClass.DATA_POOL }]),
      streamFiles: async function* ({ poolId }: ListFilesRequest) {
        await agent.beforeFiles();
        for (const file of agent.scanned.get(poolId) ?? []) yield { files: [file] };
      },
      listFiles: async ({ poolId }) => ({
        files: [...this.files.values()].filter(file => file.poolId === poolId),
      }),
    };
  }

  #backupService(): BackupServiceImplementation {
    const file = (id: string): Entities => [{ id, entityClass: EntityClass.FILE }];
    return {
      start: async request =>
        this.#start('backup', request, [
          ...file(request.extendFileId || request.fileId),
          { id: request.domainId, entityClass: EntityClass.DOMAIN },
        ]),
      show: async ({ file: asked }) => {
        if (!this.show && this.showsFiles) {
          const isIt = ({ poolId, filename }: BackupFile) =>
            poolId === asked?.poolId && filename === asked.filename;
          const found = [...this.files.values()].find(isIt);
          if (!found) throw new VirtkeepError('file_not_found', { id: asked?.filename ?? '' });
          return ShowBackupResponse.fromPartial({ file: found });
        }
        if (!this.show) throw new VirtkeepError('archive_damaged', { path: 'x', reason: 'no configuration' });
        return this.show;
      },
      refresh: async request => this.#start('refresh_backup', request, file(request.fileId)),
      verify: async request => this.#start('verify', request, file(request.fileId)),
      delete: async request => this.#start('delete_backup', request, file(request.fileId)),
      recompress: async request => this.#start('recompress', request, file(request.fileId)),
      recompressCopy: async request => this.#start('recompress_copy', request, file(request.fileId)),
      convert: async request =>
        this.#start(request.all ? 'convert_all' : 'convert_backup', request, file(request.fileId)),
      export: async request => this.#start('export_backup', request, file(request.fileId)),
      trim: async request => this.#start('trim', request, file(request.fileId)),
      download: request => this.#download(request),
    };
  }

  async *#download({ file, member, offset, length }: DownloadBackupRequest) {
    const key = member === '' ? file!.filename : `${file!.filename}#${member}`;
    const whole = this.contents.get(key);
    if (!whole) throw new VirtkeepError('member_not_found', { path: file!.filename, member });
    const size = this.sizesUnknown ? 0n : BigInt(whole.length);
    const end = length === 0n ? whole.length : Number(offset + length);
    const part = whole.subarray(Number(offset), end);
    this.openDownloads += 1;
    try {
      yield { size, data: part.subarray(0, this.chunkBytes) };
      for (let at = this.chunkBytes; at < part.length; at += this.chunkBytes) {
        this.sentBytes += this.chunkBytes;
        yield { size: 0n, data: part.subarray(at, at + this.chunkBytes) };
      }
    } finally {
      this.openDownloads -= 1;
    }
  }

  #snapshotService(): SnapshotServiceImplementation {
    const domain = (id: string): Entities => [{ id, entityClass: EntityClass.DOMAIN }];
    return {
      list: async ({ domainId }) => ({ snapshots: this.domains.get(domainId)?.savedStates ?? [] }),
      create: async request => this.#start('create_snapshot', request, domain(request.domainId)),
      remove: async request => this.#start('remove_snapshot', request, domain(request.domainId)),
      revert: async request => this.#start('revert_snapshot', request, domain(request.domainId)),
    };
  }

  #restoreService(): RestoreServiceImplementation {
    return {
      start: async request =>
        this.#start('restore', request, [
          { id: request.domainId, entityClass: EntityClass.DOMAIN },
          { id: request.fileId, entityClass: EntityClass.FILE },
        ]),
      startConfig: async request =>
        this.#start('config_restore', request, [
          { id: request.domainId, entityClass: EntityClass.DOMAIN },
          { id: request.fileId, entityClass: EntityClass.FILE },
        ]),
      startAppliance: async request =>
        this.#start('appliance_restore', request, [
          { id: request.domainId, entityClass: EntityClass.DOMAIN },
          { id: request.fileId, entityClass: EntityClass.FILE },
        ]),
      importDisk: async request =>
        this.#start('import_disk', request, [
          { id: request.domainId, entityClass: EntityClass.DOMAIN },
          { id: request.fileId, entityClass: EntityClass.FILE },
        ]),
    };
  }

  #diskService(): DiskServiceImplementation {
    const domain = (id: string): Entities => [{ id, entityClass: EntityClass.DOMAIN }];
    return {
      attach: async request => this.#start('attach_disk', request, domain(request.domainId)),
      detach: async request => this.#start('detach_disk', request, domain(request.domainId)),
      lend: async request => this.#start('lend_disk', request, domain(request.borrowerId)),
      return: async request => this.#start('return_disk', request, domain(request.ownerId)),
    };
  }

  #templateService(): TemplateServiceImplementation {
    const domain = (id: string): Entities => [{ id, entityClass: EntityClass.DOMAIN }];
    return {
      clone: async request => this.#start('clone_domain', request, domain(request.newDomainId)),
      change: async request => this.#start('change_template', request, domain(request.domainId)),
    };
  }

  #guestService(): GuestServiceImplementation {
    const start = (kind: string) => async (request: { operationId: string; domainId: string }) =>
      this.#start(kind, request, [{ id: request.domainId, entityClass: EntityClass.DOMAIN }]);
    return {
      listCommands: async () => ({ commands: this.guestCommands }),
      runCommand: async (request, { signal }) => ({
        resultJson: await this.runGuestCommand(request, signal),
      }),
      getInfo: async ({ domainId }) =>
        this.freshGuestInfo ?? this.domains.get(domainId)?.guestInfo ?? GuestInfo.fromPartial({}),
      listSshKeys: async ({ user }) => ({ keys: this.sshKeys.get(user) ?? [] }),
      setHostname: start('set_hostname'),
      joinDirectory: start('join_directory'),
      leaveDirectory: start('leave_directory'),
      addSshKeys: start('add_ssh_keys'),
      removeSshKeys: start('remove_ssh_keys'),
      sysprep: start('sysprep'),
      prepare: start('prepare'),
      listPreparations: async () => ({ operations: this.preparations }),
      attachTools: start('attach_guest_tools'),
      detachTools: start('detach_guest_tools'),
    };
  }

  #operationService(): OperationServiceImplementation {
    const agent = this;
    return {
      get: async ({ id }) => agent.toldOperation(id),
      list: async ({ running }) => ({
        operations: [...agent.operations.values()].filter(
          item => !running || item.state === OperationState.RUNNING,
        ),
        sequence: agent.#sequence,
      }),
      async *watch({ afterSequence }, { signal }) {
        let seen = afterSequence;
        let wake = () => {};
        const listener = () => wake();
        agent.#listeners.add(listener);
        signal.addEventListener('abort', listener);
        try {
          while (!signal.aborted) {
            for (const event of agent.#history.filter(item => item.sequence > seen)) {
              seen = event.sequence;
              yield event;
            }
            await new Promise<void>(resolve => {
              wake = resolve;
              if (signal.aborted || agent.#sequence > seen) resolve();
            });
          }
        } finally {
          agent.#listeners.delete(listener);
        }
      },
      cancel: async ({ id }) => {
        agent.#operation(id);
        const { msgKey, code, message: detail, params } = new VirtkeepError('canceled');
        return agent.update(id, {
          state: OperationState.CANCELED,
          finished: new Date(),
          error: { msgKey, code, detail, params },
        });
      },
    };
  }

  #operation(id: string): Operation {
    const found = this.operations.get(id);
    if (!found) throw new VirtkeepError('operation_not_found', { id });
    return found;
  }
}

/** The message that says the same as the JSON; absent for a kind that tells nothing. */
function messageOf(kind: string, json: string): Operation['result'] {
  const $case = kind.replace(/_[a-z]/g, letters => letters[1]!.toUpperCase()) as ResultCase;
  try {
    const value = resultOf({ kind, resultJson: json, result: undefined, warnings: [] }, $case);
    return resultFields({ $case, value } as Result).result;
  } catch {
    return undefined;
  }
}
