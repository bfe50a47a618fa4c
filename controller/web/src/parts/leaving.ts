/** The browser asks before its page is closed while something goes on that would be cut off by it, whichever page is shown. */

const ask = (event: BeforeUnloadEvent) => event.preventDefault();
let goingOn = 0;

export async function askingBeforeLeaving<T>(work: () => Promise<T>): Promise<T> {
  goingOn += 1;
  window.addEventListener('beforeunload', ask);
  try {
    return await work();
  } finally {
    goingOn -= 1;
    if (goingOn === 0) window.removeEventListener('beforeunload', ask);
  }
}
