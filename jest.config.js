import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

// Unit tests stand beside their source, the others under test/. `soak` is what takes long or needs much.

const find = pattern =>
  globSync(pattern, { cwd: import.meta.dirname, exclude: path => path.endsWith('node_modules') });

// Long ones, most of them twins of one that `make test` runs: compressed, of another victim or storage, random, of more disks.
const LONG = [
  'test/e2e/faults-increment-compressed',
  'test/e2e/harness',
  'test/e2e/harness-world',
  'test/e2e/lending-random',
  'test/e2e/long-increments',
  'test/integration/guest/ending-commands',
  'test/integration/guest/every-command',
  'test/integration/increments/five-compressed',
  'test/integration/increments/trimmed-compressed',
  'test/integration/lending/many-disks-off',
  'test/integration/lending/two-nodes-controller-killed',
  'test/integration/lending/two-nodes-reader-agent-killed',
  'test/integration/restore/increments-compressed',
  'test/integration/snapshots/history-second',
  'test/integration/zfs/backup',
  'test/integration/zfs/lending',
];
// every case of those of which `make test` runs a few (test/lab/few.ts)
const FEW = [
  'test/e2e/faults-{backup,backup-kill,increment,instant,lend-attach,lend-detach,recompress,restore,snapshots-make,snapshots-revert}',
  'test/e2e/faults-{template-change,template-clone,trim}',
  'test/integration/export/export-faults',
  'test/integration/backup/{recover,two-nodes}',
  'test/integration/increments/faults-{after,before}',
  'test/integration/restore/{appliance,config,contents,convert,convert-ovf,convert-virtnbd,import-disk-faults,states}',
];
// What opens the database of a controller, by itself or through one of these, runs on PostgreSQL, too. Not what plays through thousands of
// days or deaths, each a round to the server, and not what is about the API document or a command alone, about bytes that pass
// through, or about nodes that lie. What takes bad input does: a number or half a character may fail in one database alone.
const OPENS_DATABASE = /(test-database|test-server|'\.\/test-kit|\/app|-world|\.\/world)\.ts'/;
const ON_SQLITE_ALONE =
  /(api-document|crash|declared-errors|foreign-clients|generated-clients|grpc-roles|hostile-nodes|nodes-download|pages|sockets|stuck|upload|year|-cli)\.test\.ts$/;
const onPostgres = ['controller/src/**/*.test.ts', 'test/contract/{notifications,rest,scale}/*.test.ts']
  .flatMap(find)
  .filter(file => !ON_SQLITE_ALONE.test(file))
  .filter(file => OPENS_DATABASE.test(readFileSync(join(import.meta.dirname, file), 'utf8')));
// Those under `e2e` that are about controllers and browsers: they compute, and start no guests, or hardly any.
const CONTROLLERS = find('test/e2e/{controllers-chaos,several-controllers,web-*}.test.ts');
const notLong = patterns =>
  patterns.flatMap(find).filter(file => !LONG.includes(file.replace(/\.test\.ts$/, '')));
const common = {
  extensionsToTreatAsEsm: ['.ts'],
  modulePathIgnorePatterns: ['<rootDir>/\\.lab', '<rootDir>/\\.cache', '<rootDir>/bundle', '/dist/'],
};
const base = {
  ...common,
  testEnvironment: '<rootDir>/test/runner/environment.js',
  testRunner: '<rootDir>/test/runner/native.js',
  injectGlobals: false,
  transform: {},
};
// those that put something else in the place of a module, or of the clock, or count the threads: all modules of a process share these
const ownModules = {
  ...common,
  testEnvironment: '<rootDir>/test/runner/own-modules.js',
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      { jsc: { target: 'es2024', parser: { syntax: 'typescript' } }, module: { type: 'es6' } },
    ],
  },
  transformIgnorePatterns: ['/node_modules/'],
};
const CHANGES_MODULES =
  /jest\s*\.(unstable_mockModule\(|useFakeTimers\(|spyOn\(performance)|clockStopped\(|subscribe\('worker_threads'/;
const needsOwnModules = file => CHANGES_MODULES.test(readFileSync(join(import.meta.dirname, file), 'utf8'));
/** The projects of that name that run these files, each in its way. */
const projectsOf = (project, files) =>
  [
    [base, files.filter(file => !needsOwnModules(file))],
    [ownModules, files.filter(needsOwnModules)],
  ]
    // no pattern would be any
    .filter(([, files]) => files.length > 0)
    .map(([way, files]) => ({ ...way, ...project, testMatch: files.map(file => `<rootDir>/${file}`) }));

export default {
  // ends what hangs; a busy machine makes slow, not wrong
  testTimeout: 900_000,
  reporters: ['default', '<rootDir>/test/summary-reporter.js'],
  projects: [
    ...projectsOf({ displayName: 'unit' }, find('{shared,agent,controller}/**/src/**/*.test.ts')),
    ...projectsOf(
      {
        displayName: 'postgres',
        globalSetup: '<rootDir>/test/postgres-setup.js',
        globalTeardown: '<rootDir>/test/postgres-teardown.js',
        testEnvironmentOptions: { database: 'postgres' },
      },
      onPostgres,
    ),
    ...projectsOf({ displayName: 'contract' }, find('test/{contract,model}/**/*.test.ts')),
    ...projectsOf(
      { displayName: 'integration' },
      notLong(['test/integration/**/*.test.ts', 'agent/node-libvirt/test/**/*.test.ts']),
    ),
    ...projectsOf({ displayName: 'controllers' }, CONTROLLERS),
    ...projectsOf(
      { displayName: 'e2e' },
      notLong(['test/e2e/**/*.test.ts']).filter(file => !CONTROLLERS.includes(file)),
    ),
    ...projectsOf(
      { displayName: 'soak' },
      [
        'test/{soak,model}/**/*.test.ts',
        ...[...LONG, ...FEW].map(name => `${name}.test.ts`),
        // the random ones are longer there
        'agent/src/ovf/hostile.test.ts',
        'agent/src/appliance/{,vma/}mutations.test.ts',
        'controller/src/services/retention/plan.random.test.ts',
        'controller/src/services/schedules/year.test.ts',
      ].flatMap(find),
    ),
  ],
};
