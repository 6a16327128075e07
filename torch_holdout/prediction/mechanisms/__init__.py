"""How members' outputs become one private answer; device-side, one file each."""
