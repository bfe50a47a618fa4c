import koffi from 'koffi';

/** What a daemon tells systemd (sd_notify(3)). All of it does nothing when systemd did not start us. */
export interface SystemdNotifier {
  /** Start-up is complete; from here on the watchdog, if the unit asks for one, is fed. */
  ready(): void;
  /** The daemon has begun to stop; the watchdog is fed until the process ends. */
  stopping(): void;
  /** One line for `systemctl status`. */
  status(text: string): void;
  /** Ends the feeding of the watchdog; for tests and for a daemon that wants to be restarted. */
  close(): void;
}

type Send = (state: string) => void;

const MIN_WATCHDOG_MS = 100;

/**
 * Notifier for the unit that started this process. The watchdog is fed by a timer of the event loop at half the interval
 * (sd_watchdog_enabled(3)), so a blocked event loop is what systemd notices.
 *
 * @param send for tests; default: sd_notify of libsystemd, when NOTIFY_SOCKET is set
 */
export function systemdNotifier(
  environment: NodeJS.ProcessEnv = process.env,
  send: Send | undefined = libsystemdSend(environment),
): SystemdNotifier {
  let timer: NodeJS.Timeout | undefined;
  const tell = (state: string) => send?.(state);
  return {
    ready() {
      tell('READY=1');
      const intervalMs = watchdogIntervalMs(environment);
      if (!send || intervalMs === undefined || timer) return;
      tell('WATCHDOG=1');
      timer = setInterval(() => tell('WATCHDOG=1'), intervalMs);
      timer.unref();
    },
    stopping: () => tell('STOPPING=1'),
    status: text => tell(`STATUS=${text.replaceAll('\n', ' ')}`),
    close: () => clearInterval(timer),
  };
}

/** How often to feed the watchdog, in ms; undefined when the unit has none or it is meant for another process. */
export function watchdogIntervalMs(environment: NodeJS.ProcessEnv): number | undefined {
  const limitMs = Number(environment.WATCHDOG_USEC) / 1000;
  if (!Number.isFinite(limitMs) || limitMs <= 0) return undefined;
  if (environment.WATCHDOG_PID !== undefined && Number(environment.WATCHDOG_PID) !== process.pid)
    return undefined;
  return Math.max(MIN_WATCHDOG_MS, limitMs / 2);
}

/** Node has no unix datagram sockets, so libsystemd sends; it is there wherever NOTIFY_SOCKET is. */
function libsystemdSend(environment: NodeJS.ProcessEnv): Send | undefined {
  if (!environment.NOTIFY_SOCKET) return undefined;
  const notify = koffi
    .load('libsystemd.so.0')
    .func('int sd_notify(int unset_environment, const char *state)');
  return state => {
    const code = notify(0, state) as number;
    if (code < 0) process.stderr.write(`cannot notify systemd: error ${-code}\n`);
  };
}
