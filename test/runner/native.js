/**
 * Runs the tests of one file as jest does, but has Node load the file and all it imports, once for each worker: jest's own
 * way compiles every module anew for every file, which was more than half of all work of the tests.
 *
 * So modules keep their state from one file of a worker to the next, as in the product: a test leaves what it finds, and what
 * it has extended `expect` by. Tests, mocks and timers (`@jest/globals`) are made anew for each file, and end with it.
 */
import { createRequire, registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';
import circus from 'jest-circus/runner';
import { setGlobals } from './globals.js';

const require = createRequire(import.meta.url);
const GLOBALS = new URL('./globals.js', import.meta.url).href;
/** What circus keeps of the file before, by which it would go on. */
const HANDLERS = Symbol.for('EVENT_HANDLERS');
const TEST_TIMEOUT = Symbol.for('TEST_TIMEOUT_SYMBOL');

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === '@jest/globals' ? { url: GLOBALS, shortCircuit: true } : next(specifier, context),
});

// of a worker alone (test/run.ts): what it starts is small
delete process.env.GLIBC_TUNABLES;

let runs = 0;

export default async function runFile(globalConfig, config, environment, _runtime, path, send) {
  const before = { ...process.env };
  const { database } = config.testEnvironmentOptions;
  if (database) process.env.VIRTKEEP_TEST_DATABASE = database;
  delete globalThis[HANDLERS];
  delete globalThis[TEST_TIMEOUT];
  runs += 1;
  const runtime = {
    requireInternalModule: path => {
      delete require.cache[path];
      return require(path);
    },
    requireModule: require,
    setGlobalsForRuntime: globals => setGlobals(globals, environment),
    unstable_shouldLoadAsEsm: () => true,
    // a file that two projects have runs twice
    unstable_importModule: path => import(`${pathToFileURL(path).href}?run=${runs}`),
    enterTestCode: () => {},
    leaveTestCode: () => {},
  };
  try {
    return await circus.default(globalConfig, config, environment, runtime, path, send);
  } finally {
    restore(before);
  }
}

function restore(before) {
  for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
  Object.assign(process.env, before);
}
