/** Makes everything that deals with nodes and wires it together; main calls `load` before the server listens and `startNodes` after. */
import { X509Certificate } from 'node:crypto';
import { serialOf } from '@virtkeep/shared/serials';
import type { AgentTls } from '../agents/clients.ts';
import { LINK_TIMES, type LinkTimes } from '../agents/link.ts';
import { NodeLinks } from '../agents/links.ts';
import type { Principal } from '../auth/principal.ts';
import { watchClock } from '../clock-belief.ts';
import type { Keys } from '../keys/keys.ts';
import type { CertificateAuthority } from '../pki/index.ts';
import type { Database } from '../store/schema.ts';
import { BackupFiles, type FileListener } from './backup-files/backup-files.ts';
import { changesExtension } from './backup-files/extendable.ts';
import { IncrementalFiles } from './backup-files/extendable-files.ts';
import { reportFewerStates } from './backup-files/fewer-states.ts';
import { RemovedArchives } from './backup-files/removed-archives.ts';
import { BackupService } from './backups/backups.ts';
import { DiskImportService } from './backups/disk-import.ts';
import { DownloadService } from './backups/downloads.ts';
import { ExtensionChooser } from './backups/extension.ts';
import { FileActionService } from './backups/file-actions.ts';
import { LibraryService } from './backups/library.ts';
import { LendingService } from './disks/attachments.ts';
import { LoanReconciler } from './disks/reconciler.ts';
import { VdiskService } from './disks/vdisks.ts';
import { DomainService } from './domains/domains.ts';
import { SnapshotService } from './domains/snapshots.ts';
import { TemplateService } from './domains/templates.ts';
import { GuestService } from './guests/guests.ts';
import { GuestOperationService } from './guests/operations.ts';
import { Inventory } from './inventory/inventory.ts';
import { NodeClocks } from './inventory/node-clocks.ts';
import { IsoService } from './isos/isos.ts';
import { byRole, type ChangeInput } from './journal/changes.ts';
import { continueAfter } from './journal/sequence.ts';
import { inventoryMeasures } from './monitoring/inventory-measures.ts';
import { CertificateRegister } from './nodes/certificate-register.ts';
import { CertificateRenewer } from './nodes/certificates.ts';
import { NodeService } from './nodes/nodes.ts';
import { NodeObserver } from './nodes/observer.ts';
import { OtherNodes } from './nodes/other-nodes.ts';
import { OwnCertificate } from './nodes/own-certificate.ts';
import { RefusedNodes } from './nodes/refused-nodes.ts';
import { RevocationService } from './nodes/revocations.ts';
import { PoolForecasts } from './pools/forecasts.ts';
import { PoolService } from './pools/pools.ts';
import { ProtectionService } from './protection/protection.ts';
import { type Clock, SYSTEM_CLOCK } from './schedules/clock.ts';
import { createSchedules } from './schedules/create.ts';
import { Origins } from './schedules/origins.ts';
import { ScheduleStore } from './schedules/store.ts';
import type { CoreServices, NodeServices } from './services.ts';
import { Shares } from './shares.ts';
import { TagService } from './tags/tags.ts';
import { MultiTasks } from './tasks/multi-tasks.ts';
import { NodeTasks } from './tasks/node-tasks.ts';
import { UploadService } from './uploads/uploads.ts';

const ROUND_INTERVAL_MS = 3_600_000;
const DAY_MS = 86_400_000;

const daysAgo = (days: number) => new Date(Date.now() - days * DAY_MS);

/** What is written from now on comes after what is there, whatever the clock of who wrote that. */
async function continueSequences(db: Database): Promise<void> {
  for (const table of ['events', 'audit', 'notifications'] as const) {
    const row = await db
      .selectFrom(table)
      .select(({ fn }) => fn.max('sequence').as('last'))
      .executeTakeFirst();
    continueAfter(Number(row?.last ?? 0));
  }
}

/** How often a controller tries, and looks after things, of itself; for tests. */
export interface NodeServiceTimes extends LinkTimes {
  /** Between two looks of the loan reconciler. */
  lendingRoundMs?: number;
  /** The time by which schedules are kept. */
  clock?: Clock;
  /** How much time has passed since any instant, in ms, whatever that clock is put to. */
  elapsedMs?: () => number;
  /** False: nothing ticks but by hand. */
  ticks?: boolean;
}

/** The keys of the controller, and the authority that they are of. */
export interface ControllerKeys {
  keys: Keys;
  ca: CertificateAuthority;
}

export function createNodeServices(
  core: CoreServices,
  { keys, ca }: ControllerKeys,
  times: NodeServiceTimes = LINK_TIMES,
): NodeServices {
  const { config, db, tasks, events, changes } = core;
  const log = core.log.child({ part: 'nodes' });
  const register = new CertificateRegister(db);
  const ownCertificate = new OwnCertificate(keys, ca);
  const tls = async (): Promise<AgentTls> => {
    const own = await ownCertificate.get();
    return {
      caPem: ca.certificatePem,
      chainPem: own.chainPem,
      privateKeyPem: own.privateKeyPem,
      refusal: (nodeId, shown) => refusedNodes.refusal(nodeId, shown),
      acting: core.acting,
    };
  };
  const observer = new NodeObserver();
  const links = new NodeLinks(tls, observer, log, times);
  const tell = ({ kind, id: entityId, action }: Pick<ChangeInput, 'kind' | 'action'> & { id: string }) =>
    changes.publish({
      kind,
      entityId,
      action,
      render: viewer => render(kind, entityId, viewer),
      sameFor: byRole,
    });
  const inventory = new Inventory(db, tell);
  const ownSerial = async () => {
    const { certificatePem } = await ownCertificate.get();
    return serialOf(new X509Certificate(certificatePem).serialNumber);
  };
  const revocations = new RevocationService({ ca, register, links, events, log, ownSerial });
  const refusedNodes = new RefusedNodes(register, inventory, events, log);
  const domainOf = (id: string) => inventory.domains.get(id)?.domain;
  const fileListener: FileListener = (entityId, action) =>
    changes.publish({ kind: 'file', entityId, action });
  const backupFiles = new BackupFiles(db, fileListener, domainOf, (file, states) =>
    reportFewerStates(events, file, states),
  );
  tasks.setReleaser(taskId => backupFiles.letGo(taskId));
  inventory.setPoolWatcher(id => backupFiles.pointsOnPool(id));
  const incrementals = new IncrementalFiles(db, fileListener, events, domainOf);
  inventory.setDomainWatcher(async (id, before, after) => {
    if (changesExtension(before, after)) await incrementals.judge(id);
  });
  const clock = times.clock ?? SYSTEM_CLOCK;
  const clocks = new NodeClocks(inventory, log);
  const nodeTasks = new NodeTasks({ tasks, links, inventory, clocks, log, draining: core.draining });
  const pools = new PoolService({ inventory, links, nodeTasks, backupFiles, log });
  inventory.setReturnWatcher((id, nodeId) => void pools.scanOfReturned(nodeId, [id]));
  const poolForecasts = new PoolForecasts({ db, pools, log });
  const multiTasks = new MultiTasks(tasks, log);
  const tags = new TagService({
    db,
    inventory,
    backupFiles,
    tell: (kind, id) => tell({ kind, id, action: 'changed' }),
  });
  const protection = new ProtectionService({
    db,
    inventory,
    tags,
    tell: id => {
      if (inventory.domains.has(id)) tell({ kind: 'domain', id, action: 'changed' });
    },
    maxAgeDays: () => config.protection.max_age_days,
    keepDays: () => config.keep.tasks_days,
  });
  core.metricSources.setInventory(inventoryMeasures({ inventory, links, protection }));
  backupFiles.setPointWatcher(ids => protection.filesChanged(ids));
  nodeTasks.setProgressListener(operation => protection.attempts.progressed(operation));
  tasks.onEnd(task =>
    protection
      .taskEnded(task)
      .catch((error: unknown) =>
        log.error('the end of a backup was not noted', { task: task.row.id, error }),
      ),
  );
  const domains = new DomainService({ inventory, links, nodeTasks, tags, protection });
  const library = new LibraryService({ backupFiles, inventory, links, pools });
  const { limits } = core.config;
  const downloadPlaces = new Shares(() => ({ all: limits.downloads, perUser: limits.downloads_per_user }));
  const downloads = new DownloadService({
    library,
    links,
    pools,
    backupFiles,
    places: downloadPlaces,
  });
  const uploads = new Shares(() => ({ all: limits.uploads, perUser: limits.uploads_per_user }));
  const isos = new IsoService({ inventory, links, nodeTasks, pools, uploads, log });
  const fileUploads = new UploadService({
    inventory,
    links,
    nodeTasks,
    pools,
    uploads,
    backupFiles,
    library,
    tasks,
  });
  const snapshots = new SnapshotService({ inventory, nodeTasks, domains });
  const templates = new TemplateService({ inventory, nodeTasks, pools, domains });
  const vdisks = new VdiskService(inventory, links);
  const guests = new GuestService(inventory, links, core.draining);
  const guestOperations = new GuestOperationService(inventory, nodeTasks);
  const { lendingRoundMs } = times;
  const loanReconciler = new LoanReconciler({
    inventory,
    clocks,
    links,
    tasks,
    events,
    log,
    roundMs: lendingRoundMs,
  });
  const lending = new LendingService({
    inventory,
    links,
    nodeTasks,
    clocks,
    reconciler: loanReconciler,
  });
  const removedArchives = new RemovedArchives(db);
  const extensions = new ExtensionChooser(inventory, backupFiles, incrementals, pools);
  const backups = new BackupService({
    inventory,
    backupFiles,
    pools,
    library,
    nodeTasks,
    extensions,
    removedArchives,
    domains,
    attempts: protection.attempts,
    origins: new Origins({ store: new ScheduleStore(db), clock }),
    log,
  });
  const diskImports = new DiskImportService({ inventory, backupFiles, pools, library, nodeTasks, domains });
  const fileActions = new FileActionService({
    inventory,
    backupFiles,
    removedArchives,
    pools,
    library,
    nodeTasks,
    tags,
  });
  const { scheduler, schedules, coverage, ticker } = createSchedules({
    db,
    tasks,
    events,
    multiTasks,
    inventory,
    tags,
    pools,
    backups,
    backupFiles,
    snapshots,
    fileActions,
    extensions,
    library,
    draining: core.draining,
    clock,
    elapsedMs: times.elapsedMs ?? (() => performance.now()),
    log,
    limits: () => ({ perNode: config.schedules.per_node, perPool: config.schedules.per_pool }),
    isReady: nodeId => links.isConnected(nodeId) && inventory.nodes.get(nodeId)?.row.service_mode === 0,
    tell: (id, action) => changes.publish({ kind: 'scheduled_task', entityId: id, action }),
    graceMs: () => config.protection.grace_hours * 3_600_000,
    notifications: core.notifications,
    protection: () => protection.records(),
    maxAgeDays: () => config.protection.max_age_days,
    dailyAt: () => config.notifications.daily_at,
  });
  protection.setCoverage(coverage);
  core.metricSources.setSchedules(coverage);
  const enrolmentLifetimeMs = config.agents.enrolment_lifetime_s * 1000;
  const nodes = new NodeService({
    db,
    ca,
    register,
    revocations,
    links,
    inventory,
    backupFiles,
    tasks,
    events,
    enrolmentLifetimeMs,
  });
  const graceMs = config.agents.lost_after_s * 1000;
  observer.attach({
    inventory,
    clocks,
    register,
    revocations,
    backupFiles,
    tasks,
    nodeTasks,
    pools,
    otherNodes: new OtherNodes(inventory, links),
    events,
    log,
    graceMs,
  });
  /** What the stream tells of a change; of pools, disks and files only that they changed. */
  const render = (kind: string, id: string, viewer: Principal): unknown => {
    if (kind === 'domain') return domains.find(id, viewer) ?? null;
    return kind === 'node' && inventory.nodes.has(id) ? nodes.get(id) : null;
  };
  const renewer = new CertificateRenewer({ ca, register, links, inventory, log });
  let roundTimer: NodeJS.Timeout | undefined;
  let loaded: Promise<void> | undefined;
  let judging: Promise<void> | undefined;
  const stopping = new AbortController();
  const load = () => {
    loaded ??= (async () => {
      await continueSequences(db);
      await core.settings.load();
      await inventory.load();
      await tags.load();
      await protection.load();
      await register.load();
      await nodeTasks.failInterrupted();
      await scheduler.load();
      await coverage.refresh();
      // an estimate keeps nobody waiting
      void poolForecasts.round(new Date());
    })();
    return loaded;
  };

  let starting: Promise<void> | undefined;
  async function begin(): Promise<void> {
    await load();
    judging = incrementals.judgeAll(stopping.signal).catch((error: unknown) => {
      log.error('not all backups were judged after the start', { error });
    });
    await multiTasks.resume();
    if (stopping.signal.aborted) return;
    for (const { row } of inventory.nodes.values())
      await links.add({ id: row.id, name: row.verbose_name, address: row.address });
    links.complete();
    if (stopping.signal.aborted) return;
    const isClockBelieved = watchClock();
    roundTimer = setInterval(() => {
      void renewer.round();
      revocations.tellAll();
      multiTasks.resume().catch(error => log.error('tasks of many parts not looked after', { error }));
      if (isClockBelieved()) {
        schedules
          .prune(daysAgo(config.keep.runs_days))
          .catch(error => log.error('old runs not forgotten', { error }));
        void poolForecasts.round(new Date());
      }
      register.prune(new Date()).catch(error => log.error('old certificates not forgotten', { error }));
    }, ROUND_INTERVAL_MS);
    roundTimer.unref();
    loanReconciler.start();
    await scheduler.resume();
    if (times.ticks !== false && !stopping.signal.aborted) {
      ticker.start();
      core.notifications.start(() => clock.now());
    }
  }

  return {
    nodes,
    revocations,
    pools,
    poolForecasts,
    domains,
    library,
    fileActions,
    downloads,
    isos,
    fileUploads,
    snapshots,
    backups,
    diskImports,
    vdisks,
    lending,
    loanReconciler,
    templates,
    guests,
    guestOperations,
    tags,
    protection,
    multiTasks,
    schedules,
    scheduler,
    load,
    startNodes() {
      starting = begin();
      return starting;
    },
    nodesSettled: mostMs => links.settled(mostMs),
    nodesReach: () => links.reach(),
    async stopNodes() {
      stopping.abort();
      clearInterval(roundTimer);
      await judging;
      await ticker.stop();
      observer.stop();
      pools.stop();
      await links.stop();
      await loanReconciler.stop();
      await core.notifications.stop();
      // what was just being begun needs the database to its end
      await starting?.catch(() => {});
      await tasks.flush();
    },
  };
}
