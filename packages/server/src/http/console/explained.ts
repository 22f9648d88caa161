import { ApiError } from '../../errors.ts';
import { IdentityError, KEYS_PER_USER_MAX, KeyLimitError } from '../../identity/administration.ts';

/** What identity cannot do for a person is said in its own words. */
export async function explained<T>(action: () => T | Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof KeyLimitError) {
      throw new ApiError(
        'WAF.1001',
        `a user can have at most ${KEYS_PER_USER_MAX} access keys: delete one first`,
      );
    }
    if (error instanceof IdentityError) throw new ApiError('WAF.1001', error.message);
    throw error;
  }
}
