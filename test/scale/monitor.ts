/**
 * Loaded into a controller that is measured: writes what only the process itself knows. SIGUSR2 begins a new measurement, SIGWINCH has
 * the memory cleared of what nobody needs any more, before it is measured.
 */
import { subscribe } from 'node:diagnostics_channel';
import { renameSync, writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

export interface Measured {
  /** The longest that the event loop was kept, ms. */
  worstDelayMs: number;
  rssBytes: number;
  heapBytes: number;
}

const file = process.env.VIRTKEEP_SCALE_MONITOR;
const EVERY_MS = 400;
const RESOLUTION_MS = 5;

if (file) {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  process.on('SIGUSR2', () => delay.reset());
  // nobody can wait before
  subscribe('tracing:net.server.listen:asyncEnd', () => delay.reset());
  const write = () => {
    const { rss, heapUsed } = process.memoryUsage();
    const measured: Measured = { worstDelayMs: delay.max / 1e6, rssBytes: rss, heapBytes: heapUsed };
    writeFileSync(`${file}.new`, JSON.stringify(measured));
    renameSync(`${file}.new`, file);
  };
  process.on('SIGWINCH', () => {
    setFlagsFromString('--expose-gc');
    runInNewContext('gc')();
    write();
  });
  setInterval(write, EVERY_MS).unref();
}
