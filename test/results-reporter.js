import { appendFileSync } from 'node:fs';

// Writes what each file came to the moment it ends, one JSON line each, so that a run that is ended early has still told it.
export default class ResultsReporter {
  #file = process.env.VIRTKEEP_TEST_RESULTS;

  onTestResult(
    _test,
    { testFilePath, numPassingTests, numFailingTests, testExecError, testResults, perfStats },
  ) {
    const failures = testResults
      .filter(({ status }) => status === 'failed')
      .map(({ fullName, failureMessages }) => ({ test: fullName, reason: failureMessages.join('\n') }));
    this.#write({
      name: testFilePath,
      passed: numPassingTests,
      failed: numFailingTests || (testExecError ? 1 : 0),
      failures: testExecError ? [...failures, { test: '', reason: testExecError.message }] : failures,
      seconds: (perfStats.end - perfStats.start) / 1000,
    });
  }

  onRunComplete() {
    this.#write({ complete: true });
  }

  #write(line) {
    if (this.#file !== undefined) appendFileSync(this.#file, `${JSON.stringify(line)}\n`);
  }
}
