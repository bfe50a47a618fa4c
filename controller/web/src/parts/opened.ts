import { useState } from 'react';

/**
 * The record as it was when the form was opened. The page's own follows what others change meanwhile; what nobody touched in the form is
 * to stay theirs, so what is saved is found by this one.
 */
export function useOpened<T>(record: T): T {
  const [opened] = useState(record);
  return opened;
}

/** The fields of the form that differ from what they were; one that is a list or has parts is saved whole. */
export function changesOf<T extends object>(opened: T, edited: { [Key in keyof T]?: T[Key] }): Partial<T> {
  const differs = ([key, value]: [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(opened[key as keyof T]);
  return Object.fromEntries(Object.entries(edited).filter(differs)) as Partial<T>;
}
