import { ConfigError } from '@virtkeep/shared/config';
import { reasonOf } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { systemdNotifier } from '@virtkeep/shared/systemd';
import type { AgentConfig } from './config.ts';
import { loadIdentity } from './enroll/identity.ts';
import { startGrpcServer } from './grpc/server.ts';
import type { Journal } from './operations/journal.ts';
import { makeParts, type Parts } from './parts.ts';
import { agentServices } from './services.ts';
import { Shutdown } from './shutdown.ts';
import { AGENT_VERSION } from './version.ts';

const HOUR_MS = 3_600_000;
/** So often it is looked for uploads that are given up. */
const SWEEP_MS = 30_000;
const DAY_MS = 24 * HOUR_MS;
/** The controller renews at a third of a certificate's life; below this something is wrong with it. */
const EXPIRY_WARNING_MS = 30 * DAY_MS;
/** Event streams may send their last events for so long at the end. */
const LAST_EVENTS_MS = 2_000;
/** A native call in flight can hold back the end of the process; then it is killed. */
const EXIT_LIMIT_MS = 5_000;

/**
 * Runs the agent until it is told to stop. Interrupted operations are taken up before the first call is served; libvirt
 * may come later.
 * @throws ConfigError, VirtkeepError journal_failed, or the error of the listening socket.
 */
export async function serve(config: AgentConfig, log: Logger): Promise<void> {
  const identity = loadIdentity(config.tls.dir);
  if (config.node_id !== undefined && config.node_id !== identity.nodeId) {
    throw new ConfigError(
      `node_id is ${config.node_id}, but this node is enrolled as ${identity.nodeId}; enrol it again`,
    );
  }
  const notifier = systemdNotifier();
  const parts = makeParts(config, identity, log);
  const { runner, link, status, inventory, credentials, revocations, journal } = parts;
  runner.recover();
  const services = agentServices(parts);
  const { address, port } = config.listen;
  const server = await startGrpcServer({
    address,
    port,
    credentials,
    revocations,
    epochs: journal.settings,
    services,
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
      parts.uploads.pause();
    },
  });
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => shutdown.signal(name));
  const stopping = new AbortController();
  const sweep = () => void parts.uploads.sweep(stopping.signal);
  link.onChange(connected => {
    server.setHealthy(connected && shutdown.state === 'serving');
    if (!connected) return;
    runner.retryNow();
    // what a stopped agent left of uploads lies in pools, which only libvirt knows
    sweep();
  });
  inventory.start();
  parts.guests.start();
  parts.lending.start();
  void link.open();
  cleanUp(parts, config, log);
  const sweeper = setInterval(sweep, SWEEP_MS);
  const janitor = setInterval(() => cleanUp(parts, config, log), HOUR_MS);
  log.info('agent is serving', {
    port: server.port,
    node: identity.nodeId,
    version: AGENT_VERSION,
    pid: process.pid,
  });
  notifier.ready();

  await shutdown.stopped;
  clearInterval(janitor);
  clearInterval(sweeper);
  stopping.abort();
  await close(parts, () => server.close(LAST_EVENTS_MS));
}

async function close(
  { runner, inventory, guests, lending, link, journal }: Parts,
  closeServer: () => Promise<void>,
): Promise<void> {
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), EXIT_LIMIT_MS).unref();
  runner.close();
  await lending.stop();
  await closeServer();
  guests.stop();
  await inventory.stop();
  await link.close();
  journal.close();
}

function cleanUp({ journal, renewal }: Parts, config: AgentConfig, log: Logger): void {
  forgetOld(journal, config, log);
  const { expires } = renewal.identity;
  if (expires.getTime() - Date.now() < EXPIRY_WARNING_MS) {
    log.warn('the certificate of this node expires soon and was not renewed', {
      expires: expires.toISOString(),
    });
  }
}

/** A journal that cannot be written is no reason to end what runs. */
function forgetOld(journal: Journal, { operation_retention_days: days }: AgentConfig, log: Logger): void {
  try {
    const forgotten = journal.purge(Date.now() - days * DAY_MS);
    if (forgotten > 0) log.info('old operations forgotten', { count: forgotten });
  } catch (error) {
    log.error('old operations cannot be forgotten now', { reason: reasonOf(error) });
  }
}
