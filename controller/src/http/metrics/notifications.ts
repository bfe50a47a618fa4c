import { familyText } from './families.ts';

/** Notifications that did not reach anybody. */
export function deadLetterText(number: number): Generator<string> {
  const family = {
    name: 'virtkeep_notification_dead_letters',
    help: 'Notifications that could not be delivered, and that nobody has looked at',
    value: () => number,
  };
  return familyText(family, [{ thing: null, labels: '' }]);
}
