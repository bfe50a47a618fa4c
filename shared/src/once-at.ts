/** The longest that a timer waits: Node's take 31 bits of milliseconds. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Runs `act` at this time (ms since 1970), however far away it is, at once when it has passed; it keeps no process alive. */
export function onceAt(time: number, act: () => void): { stop: () => void } {
  let timer: NodeJS.Timeout | undefined;
  const wait = () => {
    const leftMs = time - Date.now();
    if (leftMs <= 0) act();
    else timer = setTimeout(wait, Math.min(leftMs, MAX_TIMER_MS)).unref();
  };
  wait();
  return { stop: () => clearTimeout(timer) };
}
