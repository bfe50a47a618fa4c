/** The agent's parts, put together in the order in which they need each other. What they do stands in their folders. */

import { hostname } from 'node:os';
import { join } from 'node:path';
import { guardBackups } from '@virtkeep/shared/beneath';
import type { Logger } from '@virtkeep/shared/log';
import { ArchiveSigner, whenLocksAreMissing } from './archive/index.ts';
import { readBlockWaits } from './bandwidth/block-waits.ts';
import { LatencyTargets } from './bandwidth/latency-targets.ts';
import { BandwidthLimits } from './bandwidth/limits.ts';
import { Claims } from './claims.ts';
import { type AgentConfig, journalPath } from './config.ts';
import { ReloadableCredentials } from './enroll/credentials.ts';
import type { Identity } from './enroll/identity.ts';
import { CertificateRenewal } from './enroll/renewal.ts';
import { Revocations } from './enroll/revocations.ts';
import { domainLocks } from './grpc/start-operation.ts';
import { Guests } from './guest/index.ts';
import { ProgramHooks } from './hooks.ts';
import { Inventory } from './inventory/index.ts';
import { LibvirtLink } from './libvirt/link.ts';
import { LIBVIRT_PLACES } from './libvirt/room.ts';
import { NodeStatus } from './node-status.ts';
import { Faults } from './operations/faults.ts';
import { Journal } from './operations/journal.ts';
import { OperationRunner } from './operations/runner.ts';
import { BackupFiles, knownPlaces, PathGate } from './pools/index.ts';
import { FIRST_CONTROLLER_MS, QuestionChannel } from './question-channel.ts';
import { LoanReconciler } from './reconcilers/loans.ts';
import { AGENT_VERSION } from './version.ts';
import { readArchive } from './workflows/archives/read-archive.ts';
import type { WorkflowDependencies } from './workflows/dependencies.ts';
import { refuseStaleCopies } from './workflows/domain/stale-copy.ts';
import { Uploads } from './workflows/files/upload/index.ts';
import type { GuestOperations } from './workflows/guest/domain.ts';
import { undoEffects } from './workflows/undo/recover.ts';
import { undoWhenThere } from './workflows/undo/world.ts';
import { ZfsDriver } from './zfs/index.ts';

export interface Parts {
  journal: Journal;
  link: LibvirtLink;
  status: NodeStatus;
  backupFiles: BackupFiles;
  inventory: Inventory;
  guests: Guests;
  workflows: WorkflowDependencies;
  guestOperations: GuestOperations;
  runner: OperationRunner;
  lending: LoanReconciler;
  uploads: Uploads;
  credentials: ReloadableCredentials;
  renewal: CertificateRenewal;
  revocations: Revocations;
  questions: QuestionChannel;
}

/**
 * Makes everything and starts nothing.
 * @throws VirtkeepError journal_failed; Error when VIRTKEEP_FAULTS cannot be read.
 */
export function makeParts(config: AgentConfig, identity: Identity, log: Logger): Parts {
  const { nodeId } = identity;
  const nodeName = hostname();
  const faults = Faults.parse(process.env.VIRTKEEP_FAULTS);
  if (faults.active) log.warn('faults are injected: VIRTKEEP_FAULTS is set');
  const journal = new Journal(journalPath(config));
  const link = openLink(config, log);
  const status = new NodeStatus({ nodeId, version: AGENT_VERSION, link, log });
  whenLocksAreMissing(path =>
    log.warn('a data pool has no locks: only the controller keeps nodes from each other there', { path }),
  );
  // before libvirt tells the pools: what was cut off is undone as soon as it answers
  for (const { path } of knownPlaces(journal.settings) ?? []) guardBackups(path);
  const backupFiles = new BackupFiles(readArchive);
  const gate = new PathGate();
  const zfs = new ZfsDriver();
  const inventory: Inventory = new Inventory({
    link,
    nodeId,
    nodeName,
    settings: journal.settings,
    zfs,
    backupFiles,
    gate,
    poolIsBack: () => {
      runner.retryNow();
      lending.retryNow();
    },
    lockedBy: domainId =>
      (runner.holderOf('domain', domainId) ?? runner.holderOf('power', domainId))?.operationId,
    hold: domainId => runner.holdWhenFree('watch_states', domainLocks(domainId, ['domain', 'power'])),
    guestInfo: domainId => guests.info(domainId),
    log,
    defaultBase: config.base_data_pool,
    ownership: config.pools.ownership,
  });
  const guests: Guests = new Guests({
    link,
    domains: () => inventory.domains(),
    settings: journal.settings,
    isHeld: domainId => runner.holderOf('domain', domainId) !== undefined,
    changed: () => inventory.guestsChanged(),
    log,
    freezeLimitMs: config.guest.freeze_limit_seconds * 1000,
    fileIdleMs: config.guest.file_idle_seconds * 1000,
    infoRefreshMs: config.guest.info_refresh_seconds * 1000,
  });
  const questions = new QuestionChannel({ firstMs: FIRST_CONTROLLER_MS });
  const signer = new ArchiveSigner({
    identity: () => renewal.identity,
    isRevoked: serial => revocations.isCompromised(serial),
  });
  const { command, timeout_seconds } = config.hooks.backup;
  const workflows: WorkflowDependencies = {
    ...(command && { hooks: new ProgramHooks({ command, timeoutMs: timeout_seconds * 1000 }) }),
    libvirt: () => link.get(),
    pools: signal => inventory.pools(signal),
    zfs,
    otherNodes: questions,
    claims: new Claims(),
    pendingEffects: type => journal.pendingEffects(type),
    bandwidth: new BandwidthLimits(),
    latency: new LatencyTargets({ counters: pools => readBlockWaits(link.get(), pools), log }),
    judge: signer.judge,
    sign: signer.sign,
    filesChanged: poolId => inventory.filesChanged(poolId),
    log,
    version: AGENT_VERSION,
    nodeName,
    nvramDirectory: config.libvirt.nvram_dir,
    swtpmDirectory: config.libvirt.swtpm_dir,
    saveDirectory: LIBVIRT_PLACES.memories,
    trustedCaFile: config.import.trusted_ca_file,
    forceTcg: config.guestfs.force_tcg,
    mergeBandwidthMiB: config.limits.merge_bandwidth_mib,
    compressionWorkers: config.limits.compression_workers,
    settings: journal.settings,
  };
  const guestOperations: GuestOperations = {
    libvirt: workflows.libvirt,
    pools: workflows.pools,
    otherNodes: questions,
    log,
    scratchDirectory: join(config.state_dir, 'scratch'),
    forceTcg: config.guestfs.force_tcg,
    toolsImage: config.guest.tools_image,
    changed: domainId => guests.request(domainId),
  };
  const runner = new OperationRunner({
    journal,
    log,
    undoEffect: undoWhenThere(undoEffects(workflows), {
      ...workflows,
      connected: () => link.connected,
      settings: journal.settings,
      gate,
      untilController: signal => questions.untilController(signal),
    }),
    refuseCopies: (ids, signal) => refuseStaleCopies(workflows, ids, signal),
    faults,
    concurrentOperations: config.limits.concurrent_operations,
    locksChanged: () => inventory.locksChanged(),
    inventory,
  });
  const lending: LoanReconciler = new LoanReconciler({ link, runner, workflows, log });
  const uploads = new Uploads({
    ...workflows,
    settings: journal.settings,
    expiryMs: config.limits.upload_expiry_hours * 3_600_000,
    look: async ({ poolId: id, poolPath: path, filename }, signal) => {
      await backupFiles.refresh({ id, path }, { signal });
      return backupFiles.files(id).find(file => file.filename === filename);
    },
  });
  const credentials = new ReloadableCredentials(identity);
  const revocations = new Revocations({ directory: config.tls.dir, caPem: identity.caPem, log });
  const renewal: CertificateRenewal = new CertificateRenewal({
    directory: config.tls.dir,
    identity,
    credentials,
    revocations,
    log,
  });
  return {
    journal,
    link,
    status,
    backupFiles,
    inventory,
    guests,
    workflows,
    guestOperations,
    runner,
    lending,
    uploads,
    credentials,
    renewal,
    revocations,
    questions,
  };
}

function openLink(config: AgentConfig, log: Logger): LibvirtLink {
  const { uri, keepalive_interval_seconds, keepalive_count } = config.libvirt;
  return new LibvirtLink({
    uri,
    keepAlive: { intervalSec: keepalive_interval_seconds, count: keepalive_count },
    log,
  });
}
