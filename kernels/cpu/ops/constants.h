// Constants of docs/numerics.md 4 and 5 that every ISA's file shares.
#pragma once

namespace terrace::kernels {

// EXP: range, 1/ln 2, ln 2 in two parts, and the polynomial's coefficients c0 .. c6.
inline constexpr float kExpMin = -87.0f;
inline constexpr float kExpMax = 88.0f;
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kMinusLn2High = -0x1.62e4p-1f;
inline constexpr float kMinusLn2Low = -0x1.7f7d1cp-20f;
inline constexpr float kExpCoefficients[7] = {
    1.0f, 1.0f, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.1239e4p-7f, 0x1.6a2426p-10f,
};

// The fixed-point sum: terms and totals stay below 2^51 in units of 2^-shift.
inline constexpr int kFixedBits = 51;
// |x| < 2^51 plus this lies where a double's unit is 1, so that the addition rounds to an integer, to nearest even.
inline constexpr double kRoundToInteger = 0x1.8p52;

// The least float that rounds to f16's infinity.
inline constexpr float kF16Overflow = 65520.0f;

}  // namespace terrace::kernels
