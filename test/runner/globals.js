// What tests import as `@jest/globals`. Modules are loaded once, and so are these names; what they stand for is that of the file that runs.

let current;
let jestObject;

/** Called by the runner before each file. */
export function setGlobals(globals, { moduleMocker, fakeTimersModern: timers }) {
  current = globals;
  jestObject = {
    fn: moduleMocker.fn.bind(moduleMocker),
    spyOn: moduleMocker.spyOn.bind(moduleMocker),
    restoreAllMocks: () => moduleMocker.restoreAllMocks(),
    useFakeTimers: options => timers.useFakeTimers(options),
    useRealTimers: () => timers.useRealTimers(),
    setSystemTime: now => timers.setSystemTime(now),
    advanceTimersByTime: ms => timers.advanceTimersByTime(ms),
    advanceTimersByTimeAsync: ms => timers.advanceTimersByTimeAsync(ms),
    setTimeout: ms => {
      globalThis[Symbol.for('TEST_TIMEOUT_SYMBOL')] = ms;
    },
  };
}

const standIn = find =>
  new Proxy(() => {}, {
    apply: (_target, _this, args) => find()(...args),
    get: (_target, key) => find()[key],
  });

export const afterAll = standIn(() => current.afterAll);
export const afterEach = standIn(() => current.afterEach);
export const beforeAll = standIn(() => current.beforeAll);
export const beforeEach = standIn(() => current.beforeEach);
export const describe = standIn(() => current.describe);
export const expect = standIn(() => current.expect);
export const it = standIn(() => current.it);
export const test = standIn(() => current.test);
export const jest = standIn(() => jestObject);
