/** Makes a scripted agent do by itself what it is told: backups, verifications, deletions. Time is the test's. */
import type { VirtkeepError } from '@virtkeep/shared/errors';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type { FakeAgent } from './scripted-node.ts';

// biome-ignore lint/suspicious/noExplicitAny: requests of many kinds
type Request = any;

/** Saved states that increments leave on a VM beside the newest one. */
const KEPT_BESIDE = 2;

export class LivingNode {
  readonly #agent: FakeAgent;
  readonly #now: () => Date;
  /** VMs whose backups fail, and why. */
  readonly failing = new Map<string, VirtkeepError>();
  /** Nothing ends by itself while this is set; a test ends it. */
  isSlow = false;

  constructor(agent: FakeAgent, now: () => Date) {
    this.#agent = agent;
    this.#now = now;
    agent.showsFiles = true;
    agent.whenStarted = ({ kind, request }) => {
      if (!this.isSlow) this.end(kind, request);
    };
  }

  end(kind: string, request: Request): void {
    if (kind === 'backup') this.#backUp(request);
    else if (kind === 'remove_snapshot') this.#removeState(request);
    else this.#agent.succeed(request.operationId, this.#resultOf(kind, request));
  }

  #resultOf(kind: string, request: Request): object {
    if (kind === 'delete_backup') this.#agent.files.delete(request.fileId);
    if (kind !== 'verify') return {};
    return {
      ok: true,
      problems: [],
      hashed: true,
      verified_at: this.#now().toISOString(),
      restorable_states: [],
      signature: { trust: 'own', signer: '', reason: '', covers_content: true },
    };
  }

  #backUp(request: Request): void {
    const { operationId: id, domainId } = request;
    const failure = this.failing.get(domainId);
    if (failure) {
      this.#agent.fail(id, failure);
      return;
    }
    const before = request.extend && this.#agent.files.get(request.extendFileId);
    const { name: domainName } = this.#agent.domains.get(domainId)!;
    const fileId = before ? before.id : request.fileId;
    const number = (before?.states.length ?? 0) + 1;
    const name = `virtkeep-${number}-${fileId.slice(0, 8)}`;
    const isCapable = request.canBeIncremental === true;
    if (isCapable) this.#saveState(domainId, name, fileId, request);
    const state = { name, created: this.#now(), memory: false, consistency: 'quiesced', number };
    const file = this.#agent.setFile({
      id: fileId,
      archiveId: fileId,
      poolId: before ? before.poolId : request.poolId,
      domainId,
      domainName,
      created: before?.created ?? this.#now(),
      states: [...(before?.states ?? []), state] as never,
      canBeIncremental: isCapable,
      requiredStates: isCapable ? [name] : [],
      hashed: request.hashSum === true || before?.hashed === true,
      size: (before?.size ?? 0n) + (before ? 1_000_000n : 10_000_000n),
      fallbackReason: request.fallbackReason,
    });
    this.#agent.progress(id, 'copy', before ? 1_000_000n : 10_000_000n, 10_000_000n);
    this.#agent.succeed(id, { file: BackupFile.toJSON(file), state: number });
  }

  /** Of its own archive only the newest states stay, unless they are held, and none of those that nobody extends any more. */
  #saveState(
    domainId: string,
    name: string,
    backupId: string,
    { holdStates, removedArchives }: Request,
  ): void {
    this.#agent.addState(domainId, { name, backupId, created: this.#now(), nothingDeletedSince: true });
    const { savedStates } = this.#agent.domains.get(domainId)!;
    const own = savedStates.filter(state => state.backupId === backupId);
    const merged = new Set(holdStates ? [] : own.slice(0, -1 - KEPT_BESIDE));
    const staying = savedStates.filter(
      state => !merged.has(state) && !removedArchives.includes(state.backupId),
    );
    this.#agent.setDomain({ id: domainId, savedStates: staying });
  }

  #removeState({ operationId, domainId, snapshotId }: Request): void {
    const domain = this.#agent.domains.get(domainId)!;
    this.#agent.setDomain({
      id: domainId,
      statesDeleted: this.#now(),
      savedStates: domain.savedStates
        .filter(state => state.id !== snapshotId)
        .map(state => ({ ...state, nothingDeletedSince: false })),
    });
    this.#agent.succeed(operationId);
  }
}
