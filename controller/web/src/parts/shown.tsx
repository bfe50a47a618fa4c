/** What a query has: the data, that it is under way, or why there is none. */
import { Alert, Bullseye, Button, Spinner } from '@patternfly/react-core';
import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useWords } from '../texts/index.tsx';

export function Failure({ error, again }: { error: unknown; again?: () => void }) {
  const { texts } = useWords();
  const retry = again && (
    <Button variant="link" isInline onClick={again}>
      {texts.errors.retry}
    </Button>
  );
  return (
    <Alert variant="danger" isInline title={texts.errors.title} actionLinks={retry} role="alert">
      {error instanceof Error ? error.message : String(error)}
    </Alert>
  );
}

export function Waiting() {
  const { texts } = useWords();
  return (
    <Bullseye>
      <Spinner aria-label={texts.loading} />
    </Bullseye>
  );
}

interface ShownProps<T> {
  query: UseQueryResult<T>;
  children: (data: T) => ReactNode;
}

/** Data that could not be renewed stay, with the reason above them. */
export function Shown<T>({ query, children }: ShownProps<T>) {
  const again = () => void query.refetch();
  if (query.data === undefined)
    return query.isError ? <Failure error={query.error} again={again} /> : <Waiting />;
  return (
    <>
      {query.isError && <Failure error={query.error} again={again} />}
      {children(query.data)}
    </>
  );
}
