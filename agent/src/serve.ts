import { hostname } from 'node:os';
import { join } from 'node:path';
import { orAborted } from '@virtkeep/shared/abort';
import type { Logger } from '@virtkeep/shared/log';
import { systemdNotifier } from '@virtkeep/shared/systemd';
import type { AgentConfig } from './config.ts';
import { type Identity, loadIdentity } from './enroll/identity.ts';
import { CertificateRenewal } from './enroll/renewal.ts';
import { ReloadableCredentials } from './grpc/credentials.ts';
import type { Inventory } from './grpc/node-service.ts';
import { startGrpcServer } from './grpc/server.ts';
import { LibvirtLink } from './libvirt-link.ts';
import { NodeStatus } from './node-status.ts';
import { Faults } from './operations/faults.ts';
import { Journal } from './operations/journal.ts';
import { OperationRunner } from './operations/runner.ts';
import { agentServices } from './services.ts';
import { Shutdown } from './shutdown.ts';
import { AGENT_VERSION } from './version.ts';
import type { WorkflowDependencies } from './workflows/dependencies.ts';
import { undoEffects } from './workflows/recover.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** The controller renews at a third of a certificate's life; below this something is wrong with it. */
const EXPIRY_WARNING_MS = 30 * DAY_MS;
/** Event streams may send their last events for so long at the end. */
const LAST_EVENTS_MS = 2_000;
/** A native call in flight can hold back the end of the process; then it is killed. */
const EXIT_LIMIT_MS = 5_000;

/**
 * Runs the agent until it is told to stop: journal, libvirt, model of the node, operations, gRPC, in this order.
 * @throws ConfigError, VirtkeepError journal_failed, or the error of the listening socket.
 */
export async function serve(config: AgentConfig, log: Logger): Promise<void> {
  const identity = loadIdentity(config.tls.dir);
  const notifier = systemdNotifier();
  const journal = new Journal(join(config.state_dir, 'journal.db'));
  const link = openLink(config, log);
  const status = new NodeStatus({ nodeId: identity.nodeId, version: AGENT_VERSION, link, log });
  const inventory = emptyInventory;
  const workflows: WorkflowDependencies = {
    libvirt: () => link.get(),
    pools: async () => [],
    filesChanged: () => {},
    log,
    version: AGENT_VERSION,
    nodeName: hostname(),
    nvramDirectory: config.libvirt.nvram_dir,
    swtpmDirectory: config.libvirt.swtpm_dir,
    mergeBandwidthMiB: config.limits.merge_bandwidth_mib,
  };
  const runner = new OperationRunner({
    journal,
    log,
    undoEffect: undoEffects(workflows),
    faults: Faults.parse(process.env.VIRTKEEP_FAULTS),
    concurrentOperations: config.limits.concurrent_operations,
  });
  const credentials = new ReloadableCredentials(identity);
  const renewal = new CertificateRenewal({ directory: config.tls.dir, identity, credentials, log });

  runner.recover();
  const server = await startGrpcServer({
    address: config.listen.address,
    port: config.listen.port,
    credentials,
    services: agentServices({ runner, status, inventory, renewal }),
    log,
  });
  const shutdown = new Shutdown({
    runner,
    log,
    drainTimeoutMs: config.shutdown.drain_timeout_seconds * 1000,
    undoTimeoutMs: config.shutdown.undo_timeout_seconds * 1000,
    onDraining: () => {
      notifier.stopping();
      server.setHealthy(false);
      status.setDraining();
    },
  });
  link.onChange(connected => {
    server.setHealthy(connected && shutdown.state === 'serving');
    if (connected) runner.retryNow();
  });
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => shutdown.signal(name));
  const housekeeping = setInterval(() => keepHouse(journal, renewal.identity, config, log), HOUR_MS);
  keepHouse(journal, identity, config, log);
  void link.open();
  log.info('agent is serving', {
    port: server.port,
    node: identity.nodeId,
    version: AGENT_VERSION,
    pid: process.pid,
  });
  notifier.ready();

  await shutdown.stopped;
  clearInterval(housekeeping);
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), EXIT_LIMIT_MS).unref();
  runner.close();
  await server.close(LAST_EVENTS_MS);
  await link.close();
  journal.close();
}

const emptyInventory: Inventory = {
  snapshot: () => ({ node: undefined, domains: [], pools: [] }),
  async *watch(signal) {
    yield { event: { $case: 'full', value: this.snapshot() } };
    await orAborted(new Promise(() => {}), signal);
  },
};

function openLink(config: AgentConfig, log: Logger): LibvirtLink {
  const { uri, keepalive_interval_seconds, keepalive_count } = config.libvirt;
  return new LibvirtLink({
    uri,
    keepAlive: { intervalSec: keepalive_interval_seconds, count: keepalive_count },
    log,
  });
}

function keepHouse(journal: Journal, identity: Identity, config: AgentConfig, log: Logger): void {
  const forgotten = journal.purge(Date.now() - config.operation_retention_days * DAY_MS);
  if (forgotten > 0) log.info('old operations forgotten', { count: forgotten });
  if (identity.expires.getTime() - Date.now() < EXPIRY_WARNING_MS) {
    log.warn('the certificate of this node expires soon and was not renewed', {
      expires: identity.expires.toISOString(),
    });
  }
}
