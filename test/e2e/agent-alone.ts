/** An agent inside a lab node without a controller: killed, restarted and asked over gRPC directly. */
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as grpc from '@grpc/grpc-js';
import { BackupServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { DiskServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import { DomainServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { GuestServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import {
  type Operation,
  OperationServiceDefinition,
  OperationState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { PoolServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { RestoreServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { SnapshotServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { TemplateServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { UploadServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { newId } from '@virtkeep/shared/ids';
import { createChannel, createClientFactory, Status } from 'nice-grpc';
import { storeIdentity } from '../../agent/src/enroll/identity.ts';
import { MAX_MESSAGE_BYTES } from '../../controller/src/agents/clients.ts';
import type { CertificateAuthority } from '../../controller/src/pki/authority.ts';
import { issue, newAuthority } from '../contract/grpc/pki.ts';
import { type LabAgent, makeAgent } from '../lab/agent.ts';
import { few } from '../lab/few.ts';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import { startWorld, type World, type WorldOptions } from '../lab/world.ts';

/** So long an agent may take to start on a busy machine. */
const START_MS = 240_000;
const LOG_TAIL_CHARACTERS = 1_000;

/** What a guest and the pools look like; the same before and after a fault. */
export interface Picture {
  domains: string;
  states: string[];
  disks: Record<string, string>;
  files: string[][];
}

export class AgentAlone {
  readonly world: World;
  readonly agent: LabAgent;
  readonly #ca: CertificateAuthority;
  #channel: ReturnType<typeof createChannel> | undefined;

  private constructor(world: World, agent: LabAgent, ca: CertificateAuthority) {
    this.world = world;
    this.agent = agent;
    this.#ca = ca;
  }

  /** @param settings further ones of the agent */
  static async start(
    settings: Record<string, unknown> = {},
    options: WorldOptions = {},
  ): Promise<AgentAlone> {
    const world = await startWorld(options);
    const ca = await newAuthority();
    const agent = await makeAgent({
      node: world.node,
      dir: join(world.dir, 'agent'),
      settings: { base_data_pool: world.node.pool(1).name, ...settings },
    });
    const own = await issue(ca, 'server', [`urn:virtkeep:node:${newId()}`]);
    const keyPem = own.privateKeyPem;
    await storeIdentity(join(agent.dir, 'tls'), {
      keyPem,
      certificatePem: own.certificatePem,
      caPem: ca.certificatePem,
    });
    const alone = new AgentAlone(world, agent, ca);
    await alone.up();
    return alone;
  }

  /** @param isLast as of `World.stop` */
  async stop(isLast = true): Promise<void> {
    this.#channel?.close();
    await this.agent.daemon.kill();
    await this.world.stop(isLast);
  }

  /**
   * Starts the agent; the faults are those of VIRTKEEP_FAULTS.
   * @param meanwhile done while it starts: libvirtd is started, say
   */
  async up(faults = '', meanwhile = async (): Promise<void> => {}): Promise<void> {
    const seen = this.agent.daemon.log().length;
    writeFileSync(this.#faultsFile, faults);
    await this.agent.daemon.spawn({ VIRTKEEP_FAULTS: `@${this.#faultsFile}` });
    await meanwhile();
    const said = () => this.agent.daemon.log().slice(seen);
    const serves = () => {
      const text = said();
      if (text.includes('agent is serving') && text.includes('connected to libvirt')) return true;
      if (this.agent.daemon.pid === undefined) throw new Error(`the agent ended at its start:\n${text}`);
      return false;
    };
    await waitFor('the agent', serves, START_MS, 50).catch(error => {
      throw new Error(`${error.message}; it says\n${said().slice(-LOG_TAIL_CHARACTERS)}`, { cause: error });
    });
    this.#channel?.close();
    const certificate = await issue(this.#ca, 'client', ['urn:virtkeep:role:controller']);
    const credentials = grpc.credentials.createSsl(
      Buffer.from(this.#ca.certificatePem),
      Buffer.from(certificate.privateKeyPem),
      Buffer.from(certificate.chainPem),
    );
    const options = { 'grpc.max_receive_message_length': MAX_MESSAGE_BYTES };
    this.#channel = createChannel(`localhost:${this.agent.port}`, credentials, options);
    void this.#answer().catch(() => {});
  }

  /** As a controller that hears no other node: an agent that has just started waits for one before it decides without. */
  async #answer(): Promise<void> {
    const { node } = this;
    const value = 'there is no controller';
    for await (const { id, things } of node.watchQuestions({}))
      await node.answerQuestion({
        questionId: id,
        answers: things.map(() => ({ answer: { $case: 'unknown', value } })),
      });
  }

  /** Gives the agent other faults; one that has died is started. */
  async arm(faults: string): Promise<void> {
    if (this.agent.daemon.pid === undefined) return this.up(faults);
    writeFileSync(this.#faultsFile, faults);
  }

  get #faultsFile(): string {
    return join(this.agent.dir, 'faults');
  }

  async restart(faults = ''): Promise<void> {
    await this.agent.daemon.kill();
    await this.up(faults);
  }

  get backups() {
    return createClientFactory().create(BackupServiceDefinition, this.#channel!);
  }

  get node() {
    return createClientFactory().create(NodeServiceDefinition, this.#channel!);
  }

  get uploads() {
    return createClientFactory().create(UploadServiceDefinition, this.#channel!);
  }

  get restores() {
    return createClientFactory().create(RestoreServiceDefinition, this.#channel!);
  }

  get pools() {
    return createClientFactory().create(PoolServiceDefinition, this.#channel!);
  }

  get snapshots() {
    return createClientFactory().create(SnapshotServiceDefinition, this.#channel!);
  }

  get disks() {
    return createClientFactory().create(DiskServiceDefinition, this.#channel!);
  }

  get domains() {
    return createClientFactory().create(DomainServiceDefinition, this.#channel!);
  }

  get guests() {
    return createClientFactory().create(GuestServiceDefinition, this.#channel!);
  }

  get templates() {
    return createClientFactory().create(TemplateServiceDefinition, this.#channel!);
  }

  get operations() {
    return createClientFactory().create(OperationServiceDefinition, this.#channel!);
  }

  /**
   * Starts a backup to the second pool; returns the id of its operation. An agent that a fault kills at once may take
   * its answer with it: the operation is in the journal all the same.
   */
  async startBackup(guest: Guest, request: object = {}): Promise<string> {
    const operationId = newId();
    const poolId = this.world.node.pool(1).uuid;
    await this.backups
      .start({ operationId, domainId: await guest.uuid(), fileId: newId(), poolId, ...request })
      .catch(lostAnswer);
    return operationId;
  }

  async startRestore(filename: string, request: object = {}): Promise<string> {
    const operationId = newId();
    const poolId = this.world.node.pool(1).uuid;
    await this.restores
      .start({ operationId, file: { poolId, filename }, domainId: newId(), ...request })
      .catch(lostAnswer);
    return operationId;
  }

  /** The operation when it has ended. */
  async ended(operationId: string, timeoutMs = 600_000): Promise<Operation> {
    return waitFor(
      `the end of ${operationId}`,
      async () => {
        const operation = await this.operations.get({ id: operationId });
        return operation.state === OperationState.RUNNING ? undefined : operation;
      },
      timeoutMs,
    );
  }

  /** The operation at the moment its stream tells the end, as the controller hears it. @throws Error when it failed */
  async heard(operationId: string): Promise<Operation> {
    for await (const { operation } of this.operations.watch({ operationId, afterSequence: 0n }))
      if (operation?.finished) break;
    const operation = await this.operations.get({ id: operationId });
    if (operation.state === OperationState.SUCCEEDED) return operation;
    throw new Error(operation.error?.detail ?? String(operation.state));
  }

  /** Waits until the agent has died by a fault. */
  async died(): Promise<void> {
    await waitFor('the death of the agent', () => this.agent.daemon.pid === undefined, 180_000, 20);
  }

  /** An operation whose agent is killed at a fault point and started again. @returns it when it has ended */
  async killedAt(point: string, start: () => Promise<string>): Promise<Operation> {
    await this.arm(`${point}=kill`);
    const id = await start();
    await this.died();
    await this.up();
    return this.ended(id);
  }

  /** An operation that is cancelled while it is held at a fault point. @returns it when it has ended */
  async canceledAt(point: string, start: () => Promise<string>): Promise<Operation> {
    const file = this.pauseFile(`cancel-${point}`);
    await this.arm(`${point}=pause:${file}`);
    const id = await start();
    await this.whilePaused(file, async () => {
      await this.operations.cancel({ id });
    });
    return this.ended(id);
  }

  async picture(guest: Guest): Promise<Picture> {
    return {
      domains: await this.world.node.virsh('list', '--all', '--name'),
      states: await guest.snapshots(),
      disks: await guest.disks(),
      files: [0, 1].map(pool => this.files(pool)),
    };
  }

  /** Names of a pool's files, backups included; hidden ones too. */
  files(pool: number): string[] {
    const { path } = this.world.node.pool(pool);
    const backups = join(path, 'backups');
    return [...readdirSync(path), ...(existsSync(backups) ? readdirSync(backups) : [])]
      .filter(name => name !== 'backups')
      .sort();
  }

  /** Runs `work` while the agent is held at a fault point; the agent must have been started with that `pause`. */
  async whilePaused(file: string, work: () => Promise<void>): Promise<void> {
    await waitFor(`${file}.reached`, () => existsSync(`${file}.reached`), 180_000, 20);
    try {
      await work();
    } finally {
      writeFileSync(file, '');
    }
  }

  pauseFile(name: string): string {
    const file = join(this.world.dir, `pause-${name}`);
    rmSync(file, { force: true });
    rmSync(`${file}.reached`, { force: true });
    return file;
  }
}

/**
 * The moments around the steps at which something is different: the end of one is the beginning of the next. Outside of a long run they
 * are those with the most to be undone or gone on with: the others that are given, and the ends of the last two steps.
 * @param others moments in a step, beginnings that have the commit before them, and what must always be asked
 */
export function momentsOf(steps: readonly string[], ...others: string[]): string[] {
  const ends = steps.map(step => `${step}.after`);
  return [...new Set([...few([`${steps[0]}.before`, ...ends], ...ends.slice(-2)), ...others])];
}

export const fileOf = (operation: Operation): { filename: string; path: string } =>
  (JSON.parse(operation.resultJson) as { file: { filename: string; path: string } }).file;

/** How an operation ends that a killed agent had not committed. */
export const INTERRUPTED = { state: OperationState.FAILED, error: { msgKey: 'interrupted' } };

export function lostAnswer(error: Error & { code?: Status }): void {
  if (error.code !== Status.UNAVAILABLE || !/ECONNRESET|dropped|closed/i.test(error.message)) throw error;
}
